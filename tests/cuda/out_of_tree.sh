#!/usr/bin/env bash
# Builds the CUDA plug-in from a copy of its folder against an installed Tutti, the kit and nothing else. It computes the
# same bits as the plug-in that was built with the library.
#   out_of_tree.sh CMAKE SOURCES BUILD_DIR CMAKE_OPTIONS...
set -euo pipefail

cmake=$1 sources=$2 build=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED  $*"; exit 1; }

{
    "$cmake" --install "$build" --prefix "$work/prefix"
    cp -r "$sources/src/device/cuda" "$work/plugin"
    # Not optimised: only the time of the compiler would change.
    "$cmake" -S "$work/plugin" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=None "$@"
    "$cmake" --build "$work/build" --parallel 2
} >"$work/log" 2>&1 || { tail -40 "$work/log"; fail "the plug-in was not built"; }
plugin=$work/build/libtutti_cuda.so

# No file of the repository was read.
dependencies=$(find "$work/build" -name '*.d' -exec cat {} +)
[[ $dependencies == *"$work/prefix/include/tutti/kit/device/kit/select.h"* ]] || fail "the dependencies were not found"
! grep -F "$sources/" <<<"$dependencies" || fail "the plug-in includes files of the repository"
[[ $(nm -D --defined-only "$plugin" | awk '{print $NF}') == tu_device_plugin ]] || fail "the plug-in exports more than its entry"

digest() { # COMMAND_PREFIX...: the digest of a few steps
    "$@" "$work/prefix/bin/tutti" bench mlp --devices gpu:0 --batch 2 --steps 1 --repeat 1 | awk '$1 == "digest" {print $2}'
}
in_tree=$(digest env)
[[ -n $in_tree ]] || fail "tutti bench prints no digest"
out_of_tree=$(digest env TUTTI_CUDA=off TUTTI_DEVICES="$plugin")
[[ $out_of_tree == "$in_tree" ]] || fail "digest $out_of_tree, built in the tree $in_tree"
echo "digest of both plug-ins: $in_tree"
