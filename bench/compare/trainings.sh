#!/usr/bin/env bash
# Measures complete training runs of one model on a GPU: one after another on the whole GPU, against all in parallel
# on its logical devices.
#   bench/compare/trainings.sh [TUTTI]
#
# The sequential variant runs `tutti train` once per logical device, with different seeds. The parallel variant is one
# run with --ensemble, whose members are the same training runs. Both include everything a run does: start, data,
# evaluations, checkpoints. The variants alternate; ratios are those of the medians over the rounds.
#
# Environment variables and their defaults:
#   ROUNDS     5        number of rounds (odd)
#   DEVICE     gpu:0
#   PARTS      4        number of logical devices and of training runs
#   MODEL      mlp
#   DATA       mnist
#   PRECISION  tf32
#   EPOCHS     number of epochs of the recipe
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
rounds=${ROUNDS:-5} device=${DEVICE:-gpu:0} parts=${PARTS:-4} model=${MODEL:-mlp} data=${DATA:-mnist}
[[ -x $tutti ]] || { echo "program '$tutti' does not exist: build it, or give its path" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

train() { # FOLDER OPTION...
    "$tutti" train "$model" --data "$data" --precision "${PRECISION:-tf32}" ${EPOCHS:+--epochs "$EPOCHS"} --out "$folder/$1" \
        "${@:2}" > "$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
}
train_sequentially() { for ((i = 0; i < parts; i++)); do train "sequential.$1.$i" --devices "$device" --seed $((i + 1)); done; }
train_in_parallel() { train "parallel.$1" --devices "$device/$parts" --ensemble "$parts"; }
seconds() { # COMMAND...
    local begin=$EPOCHREALTIME
    "$@"
    awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.3f\n", b - a}'
}
median() { printf '%s\n' "$@" | sort -g | sed -n "$((rounds / 2 + 1))p"; }

train_sequentially warm
train_in_parallel warm
sequential=() parallel=()
for ((round = 0; round < rounds; round++)); do
    sequential+=("$(seconds train_sequentially "$round")")
    parallel+=("$(seconds train_in_parallel "$round")")
    echo "round $((round + 1)): ${sequential[round]} s sequential, ${parallel[round]} s parallel"
done
a=$(median "${sequential[@]}") b=$(median "${parallel[@]}")
echo "$parts training runs of $model on $data: $a s sequential on $device, $b s parallel on $device/$parts," \
    "$(awk -v a="$a" -v b="$b" 'BEGIN {printf "%.2f", a / b}') times as fast"
