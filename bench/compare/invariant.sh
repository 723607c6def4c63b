#!/usr/bin/env bash
# Measures the cost of --invariant, which makes results bit-identical on any number of devices, against plain steps on
# the same devices.
#   bench/compare/invariant.sh [TUTTI]
#
#   bench/compare/invariant.sh                                                on a CPU
#   DEVICES='gpu:0 gpu:0/2 gpu:0/4' BATCH=1024 bench/compare/invariant.sh     on a GPU
#
# Both sides run one block of steps per round, alternating; the cost is the ratio of the medians over the rounds. The
# digest after three steps must be the same in all rows of a model; the script fails otherwise.
#
# Environment variables and their defaults:
#   MODELS     'tutorial-cnn resnet20'
#   DEVICES    'cpu:0 cpu:0/2'
#   INVARIANT  8          value of --invariant
#   BATCH      128        batch size
#   ROUNDS     5          number of rounds (odd)
#   STEPS      2          steps per block
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
rounds=${ROUNDS:-5} invariant=${INVARIANT:-8} batch=${BATCH:-128} steps=${STEPS:-2}
read -ra models <<<"${MODELS:-tutorial-cnn resnet20}"
read -ra devices <<<"${DEVICES:-cpu:0 cpu:0/2}"
[[ -x $tutti ]] || { echo "program '$tutti' does not exist: build it, or give its path" >&2; exit 2; }

# --invariant requires one thread per device, so plain steps use one thread too.
block() { # MODEL DEVICES OPTIONS...; prints one JSON object
    local model=$1 list=$2 thread_options=()
    shift 2
    [[ $list == cpu:* ]] && thread_options=(--threads 1)
    "$tutti" bench "$model" --devices "$list" "${thread_options[@]}" --batch "$batch" --steps "$steps" --repeat 1 --json "$@"
}
value() { sed "s/.*\"$1\":\"\{0,1\}\([0-9a-f.e+-]*\).*/\1/"; }
median() { printf '%s\n' "$@" | sort -g | sed -n "$((rounds / 2 + 1))p"; }

printf '%-14s  %-10s  %9s  %13s  %6s  %s\n' model devices 'plain ms' 'invariant ms' cost digest
failed=0
for model in "${models[@]}"; do
    digests=()
    for list in "${devices[@]}"; do
        plain_ms=() invariant_ms=()
        for ((round = 0; round < rounds; round++)); do
            plain_ms+=("$(block "$model" "$list" | value ms_per_step)")
            line=$(block "$model" "$list" --invariant "$invariant")
            invariant_ms+=("$(value ms_per_step <<<"$line")")
            digests+=("$(value digest <<<"$line")")
        done
        awk -v model="$model" -v list="$list" -v a="$(median "${plain_ms[@]}")" -v b="$(median "${invariant_ms[@]}")" \
            -v digest="${digests[-1]:0:12}" \
            'BEGIN {printf "%-14s  %-10s  %9.2f  %13.2f  %+5.0f%%  %s\n", model, list, a, b, 100 * (b / a - 1), digest}'
    done
    different=$(printf '%s\n' "${digests[@]}" | sort -u | wc -l)
    ((different == 1)) || { echo "$model: $different different digests, expected one" >&2; failed=1; }
done
((failed)) || echo "the digests of each model are the same on ${devices[*]}"
exit "$failed"
