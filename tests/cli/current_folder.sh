#!/usr/bin/env bash
# Libraries that lie in the current folder under the names of those that the command needs, or opens when they are there,
# are left alone.
#   current_folder.sh TUTTI C_COMPILER
set -euo pipefail

tutti=$(realpath "$1") compiler=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

cat >intruder.c <<'PROGRAM'
#include <unistd.h>
__attribute__((constructor)) static void tell(void) { if (write(2, "INTRUDER\n", 9) < 0) _exit(3); _exit(4); }
PROGRAM
"$compiler" -shared -fPIC intruder.c -o intruder
names=$(readelf -d "$tutti" "${tutti%/*}"/libtutti*.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]$/\1/p')
for name in $names libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13 libcudnn.so.9 libcusolver.so.12 libtutti_cuda.so; do
    cp intruder "$name"
done

# Lists of folders and plug-ins may have empty elements: those of users who append to a variable that was not set.
export TUTTI_KERNELS=
check() {
    "$@" >out 2>&1 && ! grep -q INTRUDER out && grep -q '^cpu:0 ' out && return
    echo "FAILED  $*: expected the devices, and no library of the current folder"
    cat out
    exit 1
}
check "$tutti" devices
check env TUTTI_CUDA_LIBRARIES=: "$tutti" devices
check env TUTTI_CUDA_LIBRARIES=/nowhere: "$tutti" devices
check env TUTTI_DEVICES=: "$tutti" devices
# What was opened beyond the names above: nothing may come from here.
LD_DEBUG=files "$tutti" devices >out 2>&1
if grep -q "$scratch" out; then
    grep "$scratch" out
    exit 1
fi
