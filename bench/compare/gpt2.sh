#!/usr/bin/env bash
# Trains gpt2-124M (bf16, 32 x 1024 tokens) with Tutti and with PyTorch from the same weights and data: compares the losses of
# 50 steps and the time of a step. About 90 seconds on an H200 after the build.
#   bench/compare/gpt2.sh
#
# Environment variables and their defaults:
#   BUILD    build/bench: a folder with tutti, libtutti*.so and bench_gpt2; built first if it has no bench_gpt2
#   DEVICE   gpu:0
#   BATCH    32
#   CONTEXT  1024
#   STEPS    50 (of which losses are compared)
#   TIMED    40 (steps)
#   WARMUP   700 (steps in which the learning rate grows)
#   RATE     6e-4 (after them)
#   MODE     compile; or eager, for PyTorch
#   REFERENCE  0; 1 also trains in f32 in PyTorch, which shows the errors of both
#   KERNELS  1; 0 skips the table of kernel times
#   PYTHON   python3
#   CMAKE_OPTIONS  "" (more options of cmake)
#   TUTTI_KERNELS  $BUILD/kernels
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

build=${BUILD:-build/bench}
batch=${BATCH:-32}
context=${CONTEXT:-1024}
device=${DEVICE:-gpu:0}
mkdir -p "$build"
export TUTTI_KERNELS=${TUTTI_KERNELS:-$(realpath "$build")/kernels}
program=$build/bench_gpt2
if [[ ! -x $program ]]; then
    read -ra more <<<"${CMAKE_OPTIONS:-}"
    cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DTUTTI_WERROR=OFF -DTUTTI_CUDA=ON \
        "${more[@]}" >"$build.log" 2>&1 || { cat "$build.log"; exit 1; }
    cmake --build "$build" --target tutti_cli tutti_cuda bench_gpt2 >>"$build.log" 2>&1 || { tail -n 40 "$build.log"; exit 1; }
    echo "built after $SECONDS s"
fi
libraries=$(realpath "$build") # the folder may have been copied from another machine
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

status=0
"$program" "$folder" gpt2-124M "$device" bf16 "$batch" "$context" "${STEPS:-50}" "${TIMED:-40}" "${WARMUP:-700}" "${RATE:-6e-4}"
echo "Tutti has trained after $SECONDS s"
if [[ ${KERNELS:-1} != 0 ]]; then
    "$build/tutti" bench gpt2-124M --devices "$device" --precision bf16 --batch "$batch" --steps 10 --repeat 2 \
        --kernels || status=1
    echo "kernels timed after $SECONDS s"
fi
options=(--batch "$batch" --context "$context" --timed "${TIMED:-40}" --mode "${MODE:-compile}")
[[ ${REFERENCE:-0} == 0 ]] || options+=(--reference)
"${PYTHON:-python3}" -u bench/compare/gpt2.py "$folder" "${options[@]}" || status=1
echo "PyTorch has trained after $SECONDS s"
exit "$status"
