#!/usr/bin/env bash
# Measures the cost of an unused device: a network placed on one device, in a program with only that device and in a
# program with a second device. Expected: less than 2%.
#   bench/compare/pinned.sh [BENCH_DEVICES]
#
# Environment variables and their defaults:
#   ROUNDS  9        number of rounds (odd)
#   DEVICE  cpu:0    device of the network
#   OTHER   ref      unused device
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bench=${1:-build/release/bench/devices/bench_devices}
rounds=${ROUNDS:-9} device=${DEVICE:-cpu:0} other=${OTHER:-ref}
[[ -x $bench ]] || { echo "program '$bench' does not exist: build it, or give its path" >&2; exit 2; }

ms() { "$bench" pinned "$1" "$device" | sed 's/.*"ms_per_step":\([0-9.]*\).*/\1/'; }
alone=() with_other=()
for ((round = 0; round < rounds; round++)); do
    alone+=("$(ms "$device")")
    with_other+=("$(ms "$device,$other")")
done
minimum() { printf '%s\n' "$@" | sort -g | head -n 1; }
median() { printf '%s\n' "$@" | sort -g | sed -n "$((rounds / 2 + 1))p"; }
row() { awk -v n="$1" -v a="$2" -v b="$3" 'BEGIN {printf "%-8s %8.4f ms alone, %8.4f ms with an unused device: %+.1f%%\n", n, a, b, 100 * (b / a - 1)}'; }
row median "$(median "${alone[@]}")" "$(median "${with_other[@]}")"
row minimum "$(minimum "${alone[@]}")" "$(minimum "${with_other[@]}")"
