#!/usr/bin/env bash
# Builds Tutti for measuring and prints every number of docs/performance.md about this machine's GPU.
#   bench/compare/gpu.sh
#
# Needs a C compiler, CMake, Ninja and what docs/gpu.md says; PyTorch and JAX are measured where PYTHON has them. About
# 8 minutes on an H200. Changed by the environment:
#   PARTS      "ceilings logical start steps"   what to measure; digests is known too, another 3 minutes
#   WORKLOADS  "mlp,tutorial-cnn,resnet50"      or cases: mlp:tf32:128,tutorial-cnn:bf16:1024
#   PEERS      "torch,torch-graph,jax"          torch-compile (minutes of compiling) and jax-loop are known too
#   ROUNDS     5                                SECONDS_A_BLOCK  0.3
#   TUNED      1                                0: Tutti without --tune-kernels alone
#   CEILINGS_OPTIONS  ""                        of bench_ceilings: --no-cpu where there is no LAPACK
#   BUILD      build/bench                      RESULTS  $BUILD/results: JSON, and each kernel's times
#   PYTHON     python3                          CMAKE_OPTIONS    more for cmake, such as -DCUDNN_ROOT=...
#   TUTTI_KERNELS  $BUILD/kernels               where compiled kernels and what tuning chose are kept
# shellcheck disable=SC2317 # functions are called by the names in PARTS
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

read -ra parts <<<"${PARTS:-ceilings logical start steps}"
build=${BUILD:-build/bench}
results=${RESULTS:-$build/results}
python=${PYTHON:-python3}
mkdir -p "$build" "$results"
export TUTTI_KERNELS=${TUTTI_KERNELS:-$(realpath "$build")/kernels}

# Warnings are for those who work on the code; another compiler's new ones must not keep anybody from measuring.
read -ra more <<<"${CMAKE_OPTIONS:-}"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DTUTTI_WERROR=OFF -DTUTTI_CUDA=ON \
    "${more[@]}" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
cmake --build "$build" --target tutti_cli tutti_cuda bench_ceilings bench_logical >>"$build.log" 2>&1 ||
    { tail -n 40 "$build.log"; exit 1; }
tutti=$build/tutti
echo "built after $SECONDS s"
"$tutti" devices | grep -v '^null'
echo

ceilings() {
    local options
    read -ra options <<<"${CEILINGS_OPTIONS:-}"
    "$build/bench_ceilings" "${options[@]}"
}
logical() { "$build/bench_logical"; }
start() { bench/compare/start.sh "$tutti"; }
digests() { bench/compare/digests.sh "$tutti"; }

# Rounds against the peers; then where Tutti's time goes, one table a case.
steps() {
    local options=() status=0
    [[ ${TUNED:-1} == 0 ]] && options+=(--no-tuned)
    "$python" bench/compare/gpu.py --tutti "$tutti" --cases "${WORKLOADS:-mlp,tutorial-cnn,resnet50}" \
        --peers "${PEERS-torch,torch-graph,jax}" --rounds "${ROUNDS:-5}" --seconds "${SECONDS_A_BLOCK:-0.3}" \
        --json "$results/gpu.json" "${options[@]}" || status=1
    for shown in mlp:tf32:128 tutorial-cnn:bf16:128 tutorial-cnn:bf16:1024 resnet50:bf16:256; do
        IFS=: read -r workload precision batch <<<"$shown"
        [[ ,${WORKLOADS:-mlp,tutorial-cnn,resnet50}, == *,"$workload"[,:]* ]] || continue
        "$tutti" bench "$workload" --devices gpu:0 --precision "$precision" --batch "$batch" --steps 20 --repeat 1 \
            --kernels >"$results/kernels-$workload-$precision-$batch.txt" || status=1
    done
    return "$status"
}

status=0
for part in "${parts[@]}"; do
    case $part in
    ceilings | logical | start | digests | steps) ;;
    *) echo "PARTS: unknown '$part': expected ceilings, logical, start, digests or steps" >&2; exit 2 ;;
    esac
    echo "== $part"
    "$part" 2>&1 | tee "$results/$part.txt" || status=1
    echo
done
echo "results in $results; $SECONDS s in all"
exit $status
