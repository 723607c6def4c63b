#!/usr/bin/env bash
# Measures stacks: many networks trained as one program, against one after another (`tutti bench --stack N`).
#   bench/compare/stacked.sh [gpu|cpu] [TUTTI [PEERS]]
#
# gpu: 16 x mlp (tf32, batch 128), 8 x tutorial-cnn (bf16, batch 128), 64 x mlp of 64 units (f32, batch 32); PEERS is a
# Python program that measures the first workload with other engines (`PEERS stacked` prints a line per engine).
# cpu: five workloads of 2 to 16 networks; the last column says what `tutti train --stack auto` should choose.
#
# Prints, for each workload, milliseconds per step of all networks, milliseconds of one network, the speedup, and the
# target. Each workload runs the stack and one network in alternating blocks; the medians count.
#
# Environment variables and their defaults: REPEAT 7 (blocks), STEPS (per block; default: half a second)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

where=${1:-gpu} tutti=${2:-build/release/tutti} peers=${3:-}
[[ -x $tutti ]] || { echo "program '$tutti' does not exist: build it, or give its path" >&2; exit 2; }
repeat=${REPEAT:-7} steps=()
[[ ${STEPS:-} ]] && steps=(--steps "$STEPS")

field() { sed -n "s/.*\"$2\":\([0-9.]*\).*/\1/p" <<<"$1"; }
measure() { # NAME TARGET OPTIONS...
    local name=$1 target=$2 line
    shift 2
    if ! line=$("$tutti" bench "$@" --repeat "$repeat" "${steps[@]}" --json 2>&1); then
        printf '%-36s  failed: %s\n' "$name" "$line"
        return
    fi
    printf '%-36s  %10s  %10s  %8s  %s\n' "$name" "$(field "$line" ms_per_step)" "$(field "$line" one_network_ms)" \
        "$(field "$line" speedup)" "$target"
}

printf '%-36s  %10s  %10s  %8s  %s\n' workload 'ms of all' 'ms of one' speedup target
if [[ $where == gpu ]]; then
    measure '16 x mlp, tf32, batch 128' '<= 0.135 ms' mlp --stack 16 --precision tf32 --batch 128 --devices gpu:0
    measure '8 x tutorial-cnn, bf16, batch 128' '>= 1.6' tutorial-cnn --stack 8 --precision bf16 --batch 128 --devices gpu:0
    measure '64 x mlp of 64 units, batch 32' '>= 20' mlp --base 64 --stack 64 --batch 32 --devices gpu:0
    if [[ $peers ]]; then python3 "$peers" stacked; fi
else
    measure '16 x mlp of 64 units, batch 32' '>= 2' mlp --base 64 --stack 16 --batch 32
    measure '16 x mlp of 64 units, batch 128' '' mlp --base 64 --stack 16 --batch 128
    measure '4 x mlp, batch 128' '' mlp --stack 4 --batch 128
    measure '2 x tutorial-cnn, batch 32' '' tutorial-cnn --stack 2 --batch 32
    measure '4 x resnet20 of 4 channels, batch 32' '' resnet20 --base 4 --stack 4 --batch 32
fi
