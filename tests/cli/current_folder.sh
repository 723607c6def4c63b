#!/usr/bin/env bash
# Checks that the program loads no libraries from the current folder, neither those it is linked with nor those it
# opens at run time.
#   current_folder.sh TUTTI C_COMPILER
set -euo pipefail

tutti=$(realpath "$1") compiler=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

cat >intruder.c <<'PROGRAM'
#include <unistd.h>
__attribute__((constructor)) static void report(void) { if (write(2, "INTRUDER\n", 9) < 0) _exit(3); _exit(4); }
PROGRAM
"$compiler" -shared -fPIC intruder.c -o intruder
names=$(readelf -d "$tutti" "${tutti%/*}"/libtutti*.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
for name in $names libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13 libcudnn.so.9 libcusolver.so.12 libtutti_cuda.so; do
    cp intruder "$name"
done

# Empty elements in lists of folders and plug-ins (from appending to an unset variable) must not mean the current
# folder.
export TUTTI_KERNELS=
expect_devices() {
    "$@" >out 2>&1 && ! grep -q INTRUDER out && grep -q '^cpu:0 ' out && return
    echo "FAILED  $*: expected the list of devices, and no library loaded from the current folder"
    cat out
    exit 1
}
expect_devices "$tutti" devices
expect_devices env TUTTI_CUDA_LIBRARIES=: "$tutti" devices
expect_devices env TUTTI_CUDA_LIBRARIES=/nowhere: "$tutti" devices
expect_devices env TUTTI_DEVICES=: "$tutti" devices
# No other file of the current folder may be loaded either.
LD_DEBUG=files "$tutti" devices >out 2>&1
if grep -q "$scratch" out; then
    grep "$scratch" out
    exit 1
fi
