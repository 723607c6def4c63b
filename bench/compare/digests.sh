#!/usr/bin/env bash
# Checks that runs are bit-identical: compares the digests of many runs of the same workload. Every second run
# compiles its kernels again.
#   bench/compare/digests.sh [TUTTI]
#
# Several runs use the GPU at the same time, which must not change the results. Prints one line per workload and
# precision; the exit status is 0 if all runs of each have the same digest.
#
# Environment variables and their defaults:
#   RUNS        20                   runs per workload and precision
#   JOBS        4                    runs at the same time
#   WORKLOADS   "mlp tutorial-cnn"
#   PRECISIONS  "f32 tf32 bf16"
#   DEVICE      gpu:0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
runs=${RUNS:-20} jobs=${JOBS:-4} device=${DEVICE:-gpu:0}
read -ra workloads <<<"${WORKLOADS:-mlp tutorial-cnn}"
read -ra precisions <<<"${PRECISIONS:-f32 tf32 bf16}"
[[ -x $tutti ]] || { echo "program '$tutti' does not exist: build it, or give its path" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Runs the workload once and writes its digest to a file. Runs with odd numbers use a new, empty kernel cache.
digest() { # WORKLOAD PRECISION NUMBER
    local kernels=$scratch/kernels result
    (($3 % 2)) && kernels=$scratch/kernels-$3
    if result=$(TUTTI_KERNELS=$kernels "$tutti" bench "$1" --devices "$device" --precision "$2" --steps 1 --repeat 1 \
        --json 2>"$scratch/error-$3"); then
        sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/' <<<"$result" >"$scratch/digest-$3"
    else
        echo "failed: $(head -n 1 "$scratch/error-$3")" >"$scratch/digest-$3"
    fi
    (($3 % 2)) && rm -rf "$kernels"
    return 0
}
export -f digest
export scratch tutti device

status=0
for workload in "${workloads[@]}"; do
    for precision in "${precisions[@]}"; do
        rm -f "$scratch"/digest-*
        digest "$workload" "$precision" 0 # fills the shared kernel cache
        seq 1 $((runs - 1)) | xargs -P "$jobs" -I{} bash -c 'digest "$@"' digest "$workload" "$precision" {}
        found=$(cat "$scratch"/digest-* | sort | uniq -c | sort -rn)
        if [[ $(wc -l <<<"$found") == 1 && $found != *failed* ]]; then
            printf '%-14s %-5s %3d runs, same digest: %s\n' "$workload" "$precision" "$runs" "${found##* }"
        else
            printf '%-14s %-5s %3d runs, different digests:\n%s\n' "$workload" "$precision" "$runs" "$found"
            status=1
        fi
    done
done
exit $status
