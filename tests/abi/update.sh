#!/usr/bin/env bash
# Rewrites the lists of this folder from the headers and a release build, after an intended change of the interface.
#   tests/abi/update.sh [BUILD_DIR]
set -euo pipefail
root=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)
build=${1:-$root/build/release}
cmake --build "$build" --target tutti tutti_train >/dev/null
"$root/tests/abi/abi.sh" "$root/include" "$build/libtutti.so" "$build/libtutti_train.so" "${CC:-gcc}" --update
git -C "$root" --no-pager diff --stat -- tests/abi
