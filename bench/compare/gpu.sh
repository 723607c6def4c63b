#!/usr/bin/env bash
# Builds Tutti and runs every GPU benchmark of docs/performance.md on this machine. About 8 minutes on an H200.
#   bench/compare/gpu.sh
#
# Requires a C compiler, CMake, Ninja and the packages listed in docs/gpu.md. PyTorch and JAX are measured if PYTHON
# can import them. A block is a sequence of steps that is timed as a whole; each round runs one block per framework.
#
# Environment variables and their defaults:
#   BENCHMARKS         "ceilings logical start steps", of
#                        ceilings  peak throughput of large matmuls (bench_ceilings)
#                        logical   several training runs on logical devices (bench_logical)
#                        start     time from process start to the first step (start.sh)
#                        steps     training steps of Tutti, PyTorch and JAX (gpu.py)
#                        digests   checks that runs are bit-identical (digests.sh), 3 minutes more
#   WORKLOADS          "mlp,tutorial-cnn,resnet50"; also WORKLOAD:PRECISION:BATCH, as in mlp:tf32:128
#   FRAMEWORKS         "torch,torch-graph,jax"; also torch-compile (compiles for minutes) and jax-loop
#   ROUNDS             5
#   SECONDS_PER_BLOCK  0.3
#   TUNED              1; 0 skips the runs of Tutti with --tune-kernels
#   CEILINGS_OPTIONS   "" (options of bench_ceilings, for example --no-cpu without LAPACK)
#   BUILD              build/bench
#   RESULTS            $BUILD/results (JSON files and per-kernel times)
#   PYTHON             python3
#   CMAKE_OPTIONS      "" (more options of cmake, for example -DCUDNN_ROOT=...)
#   TUTTI_KERNELS      $BUILD/kernels (cache of compiled kernels and tuning results)
# shellcheck disable=SC2317 # functions are called by the names in BENCHMARKS
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

read -ra benchmarks <<<"${BENCHMARKS:-ceilings logical start steps}"
build=${BUILD:-build/bench}
results=${RESULTS:-$build/results}
python=${PYTHON:-python3}
mkdir -p "$build" "$results"
export TUTTI_KERNELS=${TUTTI_KERNELS:-$(realpath "$build")/kernels}

# TUTTI_WERROR=OFF: new warnings of other compiler versions must not fail a benchmark build.
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

# Compares Tutti with the other frameworks, then writes the kernel times of four cases.
steps() {
    local options=() status=0
    [[ ${TUNED:-1} == 0 ]] && options+=(--no-tuned)
    "$python" bench/compare/gpu.py --tutti "$tutti" --cases "${WORKLOADS:-mlp,tutorial-cnn,resnet50}" \
        --peers "${FRAMEWORKS-torch,torch-graph,jax}" --rounds "${ROUNDS:-5}" --seconds "${SECONDS_PER_BLOCK:-0.3}" \
        --json "$results/gpu.json" "${options[@]}" || status=1
    for case in mlp:tf32:128 tutorial-cnn:bf16:128 tutorial-cnn:bf16:1024 resnet50:bf16:256; do
        IFS=: read -r workload precision batch <<<"$case"
        [[ ,${WORKLOADS:-mlp,tutorial-cnn,resnet50}, == *,"$workload"[,:]* ]] || continue
        "$tutti" bench "$workload" --devices gpu:0 --precision "$precision" --batch "$batch" --steps 20 --repeat 1 \
            --kernels >"$results/kernels-$workload-$precision-$batch.txt" || status=1
    done
    return "$status"
}

status=0
for benchmark in "${benchmarks[@]}"; do
    case $benchmark in
    ceilings | logical | start | digests | steps) ;;
    *) echo "BENCHMARKS: unknown '$benchmark': expected ceilings, logical, start, digests or steps" >&2; exit 2 ;;
    esac
    echo "== $benchmark"
    "$benchmark" 2>&1 | tee "$results/$benchmark.txt" || status=1
    echo
done
echo "results in $results; $SECONDS s in total"
exit $status
