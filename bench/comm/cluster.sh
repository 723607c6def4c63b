#!/usr/bin/env bash
# Compares several processes of one machine with one process, with MPI and with PyTorch; about three minutes on 16 cores.
#   bench/comm/cluster.sh [BUILD [DDP_PEERS]]
#
#   1. The all-reduce of 4 ranks beside MPI_Allreduce, with one thread of each rank, and with those that training uses.
#   2. Training steps of tutorial-cnn and resnet20 with 128 samples a rank, in alternating rounds: one process with four
#      devices (cpu:0/4), four ranks with a quarter of the cores each, and PyTorch DDP over gloo with as many ranks and
#      threads, if DDP_PEERS is given. That is a Python file with a function run(rank, ranks, threads, name), which
#      prints a JSON object with "ms" on rank 0.
#
# Prints every round, the medians and their ratios. Rounds that would begin later than LIMIT seconds after the start are
# left out, except the first.
#
# Environment variables and their defaults:
#   MODELS  'tutorial-cnn resnet20'
#   RANKS   4
#   BATCH   128     of each rank
#   ROUNDS  5
#   LIMIT   170
#   SIZES   '1K 16K 256K 1M 4M 25M 64M'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=$(realpath "${1:-build/release}") peers=${2:-}
ranks=${RANKS:-4} batch=${BATCH:-128} rounds=${ROUNDS:-5} limit=${LIMIT:-170}
read -ra models <<<"${MODELS:-tutorial-cnn resnet20}"
read -ra sizes <<<"${SIZES:-1K 16K 256K 1M 4M 25M 64M}"
threads=$(($(nproc) / ranks))
((threads > 0)) || threads=1
for program in tutti bench_process_group; do
    [[ -x $build/$program ]] || { echo "program '$build/$program' does not exist: build it" >&2; exit 2; }
done
if [[ $peers ]]; then
    [[ -r $peers ]] || { echo "'$peers' cannot be read" >&2; exit 2; }
    python3 -c 'import torch' 2>/dev/null || { echo 'python3 has no PyTorch: DDP is left out' >&2; peers=; }
fi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
launch=(mpirun --oversubscribe --bind-to none -n "$ranks")

echo "== $ranks ranks on $(nproc) cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(date -u +%F)"
for count in 1 "$threads"; do
    echo "-- all-reduce, $count thread(s) of each rank"
    "${launch[@]}" "$build/bench_process_group" --threads "$count" --rounds 15 "${sizes[@]}"
    ((threads > 1)) || break
done

number() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p"; }
bench() { # command... : prints the JSON object
    "$@" "$build/tutti" bench "$model" --batch $((batch * ranks)) --steps 5 --repeat 2 --warmup 3 --trace-steps 2 --json \
        "${options[@]}" 2>/dev/null
}
one_process() { options=(--devices "cpu:0/$ranks") && bench env; }
several_ranks() { options=() && bench "${launch[@]}"; }
pytorch() {
    python3 -c '
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[1])))
peers = __import__(os.path.splitext(os.path.basename(sys.argv[1]))[0])
import torch.multiprocessing
ranks, threads = int(sys.argv[2]), int(sys.argv[3])
torch.multiprocessing.spawn(peers.run, args=(ranks, threads, sys.argv[4]), nprocs=ranks)' \
        "$peers" "$ranks" "$threads" "$model" 2>/dev/null
}
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
sides=(one_process several_ranks)
[[ $peers ]] && sides+=(pytorch)
for ((round = 0; round < rounds && (round == 0 || SECONDS < limit); round++)); do
    for model in "${models[@]}"; do
        order=("${sides[@]}")
        ((round % 2)) && order=(several_ranks one_process "${sides[@]:2}")
        for side in "${order[@]}"; do
            json=$("$side")
            number "$([[ $side == pytorch ]] && echo ms || echo ms_per_step)" <<<"$json" >>"$results/$model.$side"
            if [[ $side == several_ranks ]]; then
                for name in communication_ms waiting_ms; do number $name <<<"$json" >>"$results/$model.$name"; done
            fi
        done
    done
done

echo "-- training steps, $batch samples a rank, $round rounds, ms"
for model in "${models[@]}"; do
    for side in "${sides[@]}"; do
        case $side in
        one_process) title="one process, cpu:0/$ranks" ;;
        several_ranks) title="$ranks ranks x $threads threads" ;;
        pytorch) title="PyTorch DDP, $ranks x $threads" ;;
        esac
        printf '%-14s %-26s median %8.2f   rounds %s\n' "$model" "$title" "$(median <"$results/$model.$side")" \
            "$(paste -sd' ' "$results/$model.$side")"
    done
    ours=$(median <"$results/$model.several_ranks")
    printf '%-14s %-26s %.3f' "$model" 'ranks / one process' \
        "$(median <"$results/$model.one_process" | awk -v ours="$ours" '{ print $1 / ours }')"
    [[ $peers ]] && printf '   ranks / PyTorch DDP %.2f' \
        "$(median <"$results/$model.pytorch" | awk -v ours="$ours" '{ print $1 / ours }')"
    printf '   (throughput)\n%-14s %-26s communication %.2f ms, waiting %.2f ms\n' "$model" 'of a step of the ranks' \
        "$(median <"$results/$model.communication_ms")" "$(median <"$results/$model.waiting_ms")"
done
echo "-- $SECONDS s"
