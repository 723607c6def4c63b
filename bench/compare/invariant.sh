#!/usr/bin/env bash
# What the same bits on any number of devices cost: steps with --invariant against steps without, on the same devices.
#   bench/compare/invariant.sh [TUTTI]
#
#   bench/compare/invariant.sh                                                a processor
#   DEVICES='gpu:0 gpu:0/2 gpu:0/4' BATCH=1024 bench/compare/invariant.sh     a card
#
# Both sides take one block a round, in turns; the cost is that of the medians over the rounds. The digest, after three
# steps, must be the same in every row of a network: the last line says so.
# Changed by the environment: MODELS 'tutorial-cnn resnet20', DEVICES 'cpu:0 cpu:0/2', INVARIANT 8, BATCH 128, ROUNDS 5,
# STEPS 2 (in a block)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
rounds=${ROUNDS:-5} invariant=${INVARIANT:-8} batch=${BATCH:-128} steps=${STEPS:-2}
read -ra models <<<"${MODELS:-tutorial-cnn resnet20}"
read -ra devices <<<"${DEVICES:-cpu:0 cpu:0/2}"
[[ -x $tutti ]] || { echo "there is no program '$tutti': build it, or give its path" >&2; exit 2; }

block() { # model devices options; prints one JSON object. A part is computed by one thread, and so is what it is compared with
    local model=$1 list=$2 width=()
    shift 2
    [[ $list == cpu:* ]] && width=(--threads 1)
    "$tutti" bench "$model" --devices "$list" "${width[@]}" --batch "$batch" --steps "$steps" --repeat 1 --json "$@"
}
value() { sed "s/.*\"$1\":\"\{0,1\}\([0-9a-f.e+-]*\).*/\1/"; }
median() { printf '%s\n' "$@" | sort -g | sed -n "$((rounds / 2 + 1))p"; }

printf '%-14s  %-10s  %9s  %13s  %6s  %s\n' model devices 'plain ms' 'invariant ms' cost digest
failed=0
for model in "${models[@]}"; do
    digests=()
    for list in "${devices[@]}"; do
        plain=() fixed=()
        for ((round = 0; round < rounds; round++)); do
            plain+=("$(block "$model" "$list" | value ms_per_step)")
            line=$(block "$model" "$list" --invariant "$invariant")
            fixed+=("$(value ms_per_step <<<"$line")")
            digests+=("$(value digest <<<"$line")")
        done
        awk -v model="$model" -v list="$list" -v a="$(median "${plain[@]}")" -v b="$(median "${fixed[@]}")" \
            -v digest="${digests[-1]:0:12}" \
            'BEGIN {printf "%-14s  %-10s  %9.2f  %13.2f  %+5.0f%%  %s\n", model, list, a, b, 100 * (b / a - 1), digest}'
    done
    different=$(printf '%s\n' "${digests[@]}" | sort -u | wc -l)
    ((different == 1)) || { echo "$model: $different different digests" >&2; failed=1; }
done
((failed)) || echo "the bits of each network are the same on ${devices[*]}"
exit "$failed"
