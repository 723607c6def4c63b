#!/usr/bin/env bash
# What logical devices gain on independent branches: `tutti bench branches` on cpu:0/N against one core, or on gpu:0/N against
# the whole card.
#   bench/compare/branches.sh [TUTTI]
#
# Both sides take one block a round, in alternating order; the ratio is that of the medians over the rounds. The ratio
# of the least times is printed too: on a machine that others use it is the one to believe.
# Changed by the environment: ROUNDS 5, DEVICE cpu:0, DEVICES 2 (its parts), STEPS 20 (in a block), BATCH 128
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
rounds=${ROUNDS:-5} device=${DEVICE:-cpu:0} devices=${DEVICES:-2} steps=${STEPS:-20} batch=${BATCH:-128}
[[ -x $tutti ]] || { echo "there is no program '$tutti': build it, or give its path" >&2; exit 2; }

block() { # options; prints milliseconds a step
    "$tutti" bench branches --batch "$batch" --steps "$steps" --repeat 1 --json "$@" |
        sed 's/.*"ms_per_step":\([0-9.]*\).*/\1/'
}

width=() whole=$device
[[ $device == cpu:* ]] && width=(--threads 1) whole='one core'
one=() many=()
for ((round = 0; round < rounds; round++)); do
    if ((round % 2)); then
        one+=("$(block --devices "$device" "${width[@]}")")
        many+=("$(block --devices "$device/$devices" "${width[@]}")")
    else
        many+=("$(block --devices "$device/$devices" "${width[@]}")")
        one+=("$(block --devices "$device" "${width[@]}")")
    fi
done

sorted() { printf '%s\n' "$@" | sort -g; }
middle=$((rounds / 2 + 1)) # of an odd number of rounds
pick() { sed -n "$1p"; }

printf '%-10s  %10s  %10s  %10s\n' 'ms a step' median least most
row() { # name times
    local name=$1
    shift
    printf '%-10s  %10.2f  %10.2f  %10.2f\n' "$name" "$(sorted "$@" | pick $middle)" "$(sorted "$@" | pick 1)" \
        "$(sorted "$@" | pick \$)"
}
row "$whole" "${one[@]}"
row "$device/$devices" "${many[@]}"
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.2f", a / b}'; }
echo "$device/$devices is $(ratio "$(sorted "${one[@]}" | pick $middle)" "$(sorted "${many[@]}" | pick $middle)") times" \
    "as fast by the medians, $(ratio "$(sorted "${one[@]}" | pick 1)" "$(sorted "${many[@]}" | pick 1)") by the least"
