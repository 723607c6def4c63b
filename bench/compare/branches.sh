#!/usr/bin/env bash
# Measures the speedup of logical devices on independent branches: `tutti bench branches` on cpu:0/N against one core,
# or on gpu:0/N against the whole GPU.
#   bench/compare/branches.sh [TUTTI]
#
# Both sides run one block of steps per round, in alternating order. Prints the ratio of the medians over the rounds,
# and the ratio of the minimum times, which is more reliable on a machine with other load.
#
# Environment variables and their defaults:
#   ROUNDS   5        number of rounds (odd)
#   DEVICE   cpu:0    device to divide
#   DEVICES  2        number of logical devices
#   STEPS    20       steps per block
#   BATCH    128      batch size
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
rounds=${ROUNDS:-5} device=${DEVICE:-cpu:0} devices=${DEVICES:-2} steps=${STEPS:-20} batch=${BATCH:-128}
[[ -x $tutti ]] || { echo "program '$tutti' does not exist: build it, or give its path" >&2; exit 2; }

block() { # OPTIONS...; prints milliseconds per step
    "$tutti" bench branches --batch "$batch" --steps "$steps" --repeat 1 --json "$@" |
        sed 's/.*"ms_per_step":\([0-9.]*\).*/\1/'
}

thread_options=() single_name=$device
[[ $device == cpu:* ]] && thread_options=(--threads 1) single_name='one core'
single_times=() logical_times=()
for ((round = 0; round < rounds; round++)); do
    if ((round % 2)); then
        single_times+=("$(block --devices "$device" "${thread_options[@]}")")
        logical_times+=("$(block --devices "$device/$devices" "${thread_options[@]}")")
    else
        logical_times+=("$(block --devices "$device/$devices" "${thread_options[@]}")")
        single_times+=("$(block --devices "$device" "${thread_options[@]}")")
    fi
done

sorted() { printf '%s\n' "$@" | sort -g; }
middle=$((rounds / 2 + 1)) # the median, if the number of rounds is odd
pick() { sed -n "$1p"; }

printf '%-10s  %10s  %10s  %10s\n' 'ms/step' median minimum maximum
row() { # NAME TIMES...
    local name=$1
    shift
    printf '%-10s  %10.2f  %10.2f  %10.2f\n' "$name" "$(sorted "$@" | pick $middle)" "$(sorted "$@" | pick 1)" \
        "$(sorted "$@" | pick \$)"
}
row "$single_name" "${single_times[@]}"
row "$device/$devices" "${logical_times[@]}"
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.2f", a / b}'; }
echo "$device/$devices is $(ratio "$(sorted "${single_times[@]}" | pick $middle)" "$(sorted "${logical_times[@]}" | pick $middle)") times" \
    "as fast by medians, $(ratio "$(sorted "${single_times[@]}" | pick 1)" "$(sorted "${logical_times[@]}" | pick 1)") by minimum times"
