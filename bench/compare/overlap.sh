#!/usr/bin/env bash
# Measures how much of the copy time overlaps with computation, from the engine's trace. The graph is a chain of
# operations on one device; each value is copied to another device as soon as it is computed.
#   bench/compare/overlap.sh [BENCH_DEVICES]
#
# Environment variables and their defaults:
#   ROUNDS   5          number of rounds (odd)
#   DEVICES  cpu:0/2    two devices; also gpu:0,cpu:0 or gpu:0/2
#   TRACE    ""         file to write the trace of the last round to
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bench=${1:-build/release/bench/devices/bench_devices}
rounds=${ROUNDS:-5} devices=${DEVICES:-cpu:0/2}
[[ -x $bench ]] || { echo "program '$bench' does not exist: build it, or give its path" >&2; exit 2; }

percentages=()
for ((round = 0; round < rounds; round++)); do
    line=$("$bench" overlap "$devices" ${TRACE:+"$TRACE"})
    echo "$line"
    percentages+=("$(sed 's/.*"overlapped_percent":\([0-9.]*\).*/\1/' <<<"$line")")
done
median=$(printf '%s\n' "${percentages[@]}" | sort -g | sed -n "$((rounds / 2 + 1))p")
echo "$median% of the copy time overlaps with computation (median of $rounds rounds)"
