#!/usr/bin/env bash
# Whole trainings of one network on a card: one after another on the whole of it, against all at once on its logical parts.
#   bench/compare/trainings.sh [TUTTI]
#
# One side is as many runs of `tutti train` as there are parts, each with a seed of its own; the other one run with
# --ensemble, whose members are the same trainings. Both with everything a run does: start, data, evaluations, checkpoints.
# The sides take turns; ratios are of the medians over the rounds.
# Changed by the environment: ROUNDS 5, DEVICE gpu:0, PARTS 4, MODEL mlp, DATA mnist, PRECISION tf32, EPOCHS as the recipe has
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
rounds=${ROUNDS:-5} device=${DEVICE:-gpu:0} parts=${PARTS:-4} model=${MODEL:-mlp} data=${DATA:-mnist}
[[ -x $tutti ]] || { echo "there is no program '$tutti': build it, or give its path" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

train() { # FOLDER OPTION...
    "$tutti" train "$model" --data "$data" --precision "${PRECISION:-tf32}" ${EPOCHS:+--epochs "$EPOCHS"} --out "$folder/$1" \
        "${@:2}" > "$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
}
in_turn() { for ((i = 0; i < parts; i++)); do train "one.$1.$i" --devices "$device" --seed $((i + 1)); done; }
at_once() { train "all.$1" --devices "$device/$parts" --ensemble "$parts"; }
seconds() { # COMMAND...
    local begin=$EPOCHREALTIME
    "$@"
    awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.3f\n", b - a}'
}
median() { printf '%s\n' "$@" | sort -g | sed -n "$((rounds / 2 + 1))p"; }

in_turn warm
at_once warm
one=() all=()
for ((round = 0; round < rounds; round++)); do
    one+=("$(seconds in_turn "$round")")
    all+=("$(seconds at_once "$round")")
    echo "round $((round + 1)): ${one[round]} s one after another, ${all[round]} s at once"
done
a=$(median "${one[@]}") b=$(median "${all[@]}")
echo "$parts trainings of $model on $data: $a s one after another on $device, $b s on $device/$parts," \
    "$(awk -v a="$a" -v b="$b" 'BEGIN {printf "%.2f", a / b}') times as fast"
