#!/usr/bin/env bash
# Builds Tutti and runs the CPU benchmarks of docs/performance.md on this machine. About 3 minutes on 16 cores.
#   bench/compare/run_all.sh
#
# Requires a C compiler, CMake and Ninja. PyTorch and JAX are measured if PYTHON can import them. A block is a
# sequence of steps that is timed as a whole; each round runs one block per framework.
#
# Environment variables and their defaults:
#   WORKLOADS          "mlp,tutorial-cnn,resnet20"
#   THREADS            "2,16"
#   FRAMEWORKS         "torch,jax"; also torch-compile
#   BF16               "tutorial-cnn" (workloads to measure in bf16 too; "": none)
#   BF16_FRAMEWORKS    "torch"
#   ROUNDS             5
#   SECONDS_PER_BLOCK  0.5
#   BUILD              build/bench
#   RESULTS            $BUILD/results (JSON files and per-kernel times)
#   PYTHON             python3
#   CMAKE_OPTIONS      "" (more options of cmake, for example -DCMAKE_C_COMPILER=clang)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

workloads=${WORKLOADS:-mlp,tutorial-cnn,resnet20}
threads=${THREADS:-2,16}
bf16=${BF16-tutorial-cnn}
frameworks=${FRAMEWORKS-torch,jax}
rounds=${ROUNDS:-5}
seconds=${SECONDS_PER_BLOCK:-0.5}
build=${BUILD:-build/bench}
results=${RESULTS:-$build/results}
python=${PYTHON:-python3}

mkdir -p "$(dirname "$build")" "$results"
# TUTTI_WERROR=OFF: new warnings of other compiler versions must not fail a benchmark build.
read -ra more <<<"${CMAKE_OPTIONS:-}"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DTUTTI_WERROR=OFF "${more[@]}" \
    >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
cmake --build "$build" --target tutti_cli >>"$build.log" 2>&1 || { tail -n 40 "$build.log"; exit 1; }
tutti=$build/tutti
echo "built after $SECONDS s"
"$tutti" devices
echo

status=0
compare() { # RESULT_NAME OPTIONS...
    local name=$1
    shift
    "$python" bench/compare/compare.py --tutti "$tutti" --threads "$threads" --rounds "$rounds" --seconds "$seconds" \
        --json "$results/$name.json" "$@" || status=1
}

compare f32 --workloads "$workloads" --peers "$frameworks"
if [[ -n $bf16 ]]; then
    compare bf16 --workloads "$bf16" --peers "${BF16_FRAMEWORKS-torch}" --precision bf16
fi

# Writes the kernel times per workload, number of threads and precision.
kernels() { # WORKLOAD THREADS PRECISION
    "$tutti" bench "$1" --threads "$2" --precision "$3" --repeat 3 --kernels >"$results/kernels-$1-$2-$3.txt" || status=1
}
for count in ${threads//,/ }; do
    ((count <= $(nproc))) || continue
    for workload in ${workloads//,/ }; do kernels "$workload" "$count" f32; done
    for workload in ${bf16//,/ }; do kernels "$workload" "$count" bf16; done
done

echo "results in $results; $SECONDS s in total"
exit $status
