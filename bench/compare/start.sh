#!/usr/bin/env bash
# From the start of the process to the first finished step on a GPU: with the kernels still to be compiled, and with
# them in the cache.
#   bench/compare/start.sh [TUTTI]
#
# Cold and warm runs take turns. What the system keeps of NVIDIA's libraries in memory stays as it is: the first run of
# all, which reads them from disk, is not counted.
# Changed by the environment: RUNS 5, WORKLOAD tutorial-cnn, PRECISION bf16, DEVICE gpu:0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
runs=${RUNS:-5} workload=${WORKLOAD:-tutorial-cnn} precision=${PRECISION:-bf16} device=${DEVICE:-gpu:0}
[[ -x $tutti ]] || { echo "there is no program '$tutti': build it, or give its path" >&2; exit 2; }
TUTTI_KERNELS=$(mktemp -d)
export TUTTI_KERNELS
trap 'rm -rf "$TUTTI_KERNELS"' EXIT

start() { # prints seconds
    local result
    result=$("$tutti" bench "$workload" --devices "$device" --precision "$precision" --steps 1 --warmup 0 --repeat 1 \
        --json)
    sed 's/.*"first_step_s":\([0-9.]*\).*/\1/' <<<"$result"
}

start >/dev/null
cold=() warm=()
for ((run = 0; run < runs; run++)); do
    rm -rf "${TUTTI_KERNELS:?}"
    cold+=("$(start)")
    warm+=("$(start)")
done

echo "$workload, $precision, $device: seconds from the start of the process to the end of the first step"
row() { # name times
    local name=$1
    shift
    local median
    median=$(printf '%s\n' "$@" | sort -g | sed -n "$((runs / 2 + 1))p")
    printf '%-28s median %6.2f   all: %s\n' "$name" "$median" "$*"
}
row 'kernels to be compiled' "${cold[@]}"
row 'kernels in the cache' "${warm[@]}"
