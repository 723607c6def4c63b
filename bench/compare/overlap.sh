#!/usr/bin/env bash
# How much of the time that copies take is hidden behind computation, in a graph that allows it: a chain on one device whose
# links are sent to another as they are made. Measured by the engine's own trace.
#   bench/compare/overlap.sh [BENCH_DEVICES]
#
# Changed by the environment: ROUNDS 5, DEVICES cpu:0/2 (two of them, as in gpu:0,cpu:0 or gpu:0/2), TRACE: a file for the
# last round's
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bench=${1:-build/release/bench/devices/bench_devices}
rounds=${ROUNDS:-5} devices=${DEVICES:-cpu:0/2}
[[ -x $bench ]] || { echo "there is no program '$bench': build it, or give its path" >&2; exit 2; }

shares=()
for ((round = 0; round < rounds; round++)); do
    line=$("$bench" overlap "$devices" ${TRACE:+"$TRACE"})
    echo "$line"
    shares+=("$(sed 's/.*"overlapped_percent":\([0-9.]*\).*/\1/' <<<"$line")")
done
median=$(printf '%s\n' "${shares[@]}" | sort -g | sed -n "$((rounds / 2 + 1))p")
echo "of the time in copies, $median% is behind computation (median of $rounds)"
