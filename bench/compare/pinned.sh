#!/usr/bin/env bash
# What a device costs that has nothing to do: a network all on one device, in a program of that device alone and in one of
# two. Expected: nothing, within 2%.
#   bench/compare/pinned.sh [BENCH_DEVICES]
#
# Changed by the environment: ROUNDS 9, DEVICE cpu:0, OTHER ref
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bench=${1:-build/release/bench/devices/bench_devices}
rounds=${ROUNDS:-9} device=${DEVICE:-cpu:0} other=${OTHER:-ref}
[[ -x $bench ]] || { echo "there is no program '$bench': build it, or give its path" >&2; exit 2; }

ms() { "$bench" pinned "$1" "$device" | sed 's/.*"ms_per_step":\([0-9.]*\).*/\1/'; }
alone=() beside=()
for ((round = 0; round < rounds; round++)); do
    alone+=("$(ms "$device")")
    beside+=("$(ms "$device,$other")")
done
least() { printf '%s\n' "$@" | sort -g | head -n 1; }
median() { printf '%s\n' "$@" | sort -g | sed -n "$((rounds / 2 + 1))p"; }
row() { awk -v n="$1" -v a="$2" -v b="$3" 'BEGIN {printf "%-8s %8.4f ms alone, %8.4f ms beside another: %+.1f%%\n", n, a, b, 100 * (b / a - 1)}'; }
row median "$(median "${alone[@]}")" "$(median "${beside[@]}")"
row least "$(least "${alone[@]}")" "$(least "${beside[@]}")"
