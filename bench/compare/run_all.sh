#!/usr/bin/env bash
# Builds Tutti for measuring and prints every table of docs/performance.md for this machine's CPU.
#   bench/compare/run_all.sh
#
# Needs a C compiler, CMake and Ninja; PyTorch and JAX are measured where PYTHON has them. About 3 minutes on 16 cores.
# Changed by the environment:
#   WORKLOADS   "mlp,tutorial-cnn,resnet20"      THREADS  "2,16"
#   BF16        "tutorial-cnn", "" for none      PEERS    "torch,jax"; torch-compile is known too
#   BF16_PEERS  "torch"
#   ROUNDS      5                                SECONDS_A_BLOCK  0.5
#   BUILD       build/bench                      RESULTS  $BUILD/results: JSON, and each kernel's times
#   PYTHON      python3                          CMAKE_OPTIONS  more for cmake, such as -DCMAKE_C_COMPILER=clang
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

workloads=${WORKLOADS:-mlp,tutorial-cnn,resnet20}
threads=${THREADS:-2,16}
bf16=${BF16-tutorial-cnn}
peers=${PEERS-torch,jax}
rounds=${ROUNDS:-5}
seconds=${SECONDS_A_BLOCK:-0.5}
build=${BUILD:-build/bench}
results=${RESULTS:-$build/results}
python=${PYTHON:-python3}

mkdir -p "$(dirname "$build")" "$results"
# Warnings are for those who work on the code; another compiler's new ones must not keep anybody from measuring.
read -ra more <<<"${CMAKE_OPTIONS:-}"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DTUTTI_WERROR=OFF "${more[@]}" \
    >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
cmake --build "$build" --target tutti_cli >>"$build.log" 2>&1 || { tail -n 40 "$build.log"; exit 1; }
tutti=$build/tutti
echo "built after $SECONDS s"
"$tutti" devices
echo

status=0
compare() { # name of the result, options
    local name=$1
    shift
    "$python" bench/compare/compare.py --tutti "$tutti" --threads "$threads" --rounds "$rounds" --seconds "$seconds" \
        --json "$results/$name.json" "$@" || status=1
}

compare f32 --workloads "$workloads" --peers "$peers"
if [[ -n $bf16 ]]; then
    compare bf16 --workloads "$bf16" --peers "${BF16_PEERS-torch}" --precision bf16
fi

# Where the time goes: one table a workload, precision and number of threads.
kernels() { # workload threads precision
    "$tutti" bench "$1" --threads "$2" --precision "$3" --repeat 3 --kernels >"$results/kernels-$1-$2-$3.txt" || status=1
}
for count in ${threads//,/ }; do
    ((count <= $(nproc))) || continue
    for workload in ${workloads//,/ }; do kernels "$workload" "$count" f32; done
    for workload in ${bf16//,/ }; do kernels "$workload" "$count" bf16; done
done

echo "results in $results; $SECONDS s in all"
exit $status
