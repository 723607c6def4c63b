#!/usr/bin/env bash
# Writes the lists of this folder anew from the headers and a release build, after a change of the interface on purpose.
#   tests/abi/update.sh [BUILD_DIR]
set -euo pipefail
root=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)
build=${1:-$root/build/release}
cmake --build "$build" --target tutti tutti_train >/dev/null
"$root/tests/abi/abi.sh" "$root/include" "$build/libtutti.so" "$build/libtutti_train.so" "${CC:-gcc}" --update
git -C "$root" --no-pager diff --stat -- tests/abi
