#!/usr/bin/env bash
# Whether runs compute the same bits: the digests of many runs of the same workload, every second one with its kernels
# compiled anew.
#   bench/compare/digests.sh [TUTTI]
#
# Several runs share the card at a time, which must not matter either. A line for each workload and precision; the
# status is 0 when each has one digest.
# Changed by the environment: RUNS 20, JOBS 4 (at a time), WORKLOADS "mlp tutorial-cnn", PRECISIONS "f32 tf32 bf16",
#   DEVICE gpu:0
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
runs=${RUNS:-20} jobs=${JOBS:-4} device=${DEVICE:-gpu:0}
read -ra workloads <<<"${WORKLOADS:-mlp tutorial-cnn}"
read -ra precisions <<<"${PRECISIONS:-f32 tf32 bf16}"
[[ -x $tutti ]] || { echo "there is no program '$tutti': build it, or give its path" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# One run; its digest goes into a file of its own. Odd ones have a cache of their own that is empty.
digest() { # workload precision number
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
        digest "$workload" "$precision" 0 # fills the common cache
        seq 1 $((runs - 1)) | xargs -P "$jobs" -I{} bash -c 'digest "$@"' digest "$workload" "$precision" {}
        found=$(cat "$scratch"/digest-* | sort | uniq -c | sort -rn)
        if [[ $(wc -l <<<"$found") == 1 && $found != *failed* ]]; then
            printf '%-14s %-5s %3d runs, one digest: %s\n' "$workload" "$precision" "$runs" "${found##* }"
        else
            printf '%-14s %-5s %3d runs, not one digest:\n%s\n' "$workload" "$precision" "$runs" "$found"
            status=1
        fi
    done
done
exit $status
