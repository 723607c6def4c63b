#!/usr/bin/env bash
# Measures the time from process start to the end of the first step on a GPU, with an empty kernel cache (cold) and
# with all kernels in the cache (warm).
#   bench/compare/start.sh [TUTTI]
#
# Cold and warm runs alternate. The first run, which reads NVIDIA's libraries from disk into the page cache, is not
# counted.
#
# Environment variables and their defaults:
#   RUNS       5              number of runs of each kind (odd)
#   WORKLOAD   tutorial-cnn
#   PRECISION  bf16
#   DEVICE     gpu:0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
runs=${RUNS:-5} workload=${WORKLOAD:-tutorial-cnn} precision=${PRECISION:-bf16} device=${DEVICE:-gpu:0}
[[ -x $tutti ]] || { echo "program '$tutti' does not exist: build it, or give its path" >&2; exit 2; }
TUTTI_KERNELS=$(mktemp -d)
export TUTTI_KERNELS
trap 'rm -rf "$TUTTI_KERNELS"' EXIT

time_to_first_step() { # prints seconds
    local result
    result=$("$tutti" bench "$workload" --devices "$device" --precision "$precision" --steps 1 --warmup 0 --repeat 1 \
        --json)
    sed 's/.*"first_step_s":\([0-9.]*\).*/\1/' <<<"$result"
}

time_to_first_step >/dev/null
cold=() warm=()
for ((run = 0; run < runs; run++)); do
    rm -rf "${TUTTI_KERNELS:?}"
    cold+=("$(time_to_first_step)")
    warm+=("$(time_to_first_step)")
done

echo "$workload, $precision, $device: seconds from the start of the process to the end of the first step"
row() { # NAME TIMES...
    local name=$1
    shift
    local median
    median=$(printf '%s\n' "$@" | sort -g | sed -n "$((runs / 2 + 1))p")
    printf '%-28s median %6.2f   all: %s\n' "$name" "$median" "$*"
}
row 'cold (kernels compiled)' "${cold[@]}"
row 'warm (kernels cached)' "${warm[@]}"
