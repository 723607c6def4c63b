#!/usr/bin/env bash
# What `cmake --install` lays down is complete: a C and a C++ program find it by pkg-config, link and run; the command
# runs from there, and still does after the tree was moved. Nothing there looks for libraries in the current folder.
#   install.sh CMAKE BUILD_DIR C_COMPILER VERSION
set -euo pipefail

cmake=$1 build=$2 compiler=$3 version=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$cmake" --install "$build" --prefix "$scratch/first" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
mv "$scratch/first" "$scratch/prefix"
"${BASH_SOURCE[0]%/*}/runpaths.sh" "$scratch/prefix"

[[ $("$scratch/prefix/bin/tutti" --version) == "tutti $version" ]]
[[ -s $scratch/prefix/share/man/man1/tutti.1 ]]

PKG_CONFIG_PATH=$(dirname "$(find "$scratch/prefix" -name tutti.pc)")
export PKG_CONFIG_PATH
[[ $(pkg-config --modversion tutti) == "$version" ]]
library_dir=$(pkg-config --variable=libdir tutti)
[[ -e $library_dir/libtutti.so.0 ]]

cat >"$scratch/program.c" <<'PROGRAM'
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

int main(int argc, char **argv) {
    if (argc != 2 || strcmp(tu_version(), argv[1]) != 0 || tu_abi() != TU_ABI) return 1;
    printf("tutti %s\n", tu_version());
    return 0;
}
PROGRAM

build_and_run() { # compiler, its options and sources
    # shellcheck disable=SC2046 # the flags are words
    "$@" -Wall -Wextra -Werror -o "$scratch/program" $(pkg-config --cflags --libs tutti)
    "$scratch/program" "$version"
}

build_and_run "$compiler" -std=c17 -pedantic "$scratch/program.c"
if command -v g++ >/dev/null; then
    cp "$scratch/program.c" "$scratch/program.cc"
    build_and_run g++ -std=c++17 "$scratch/program.cc"
    cat >"$scratch/options.cc" <<'PROGRAM'
// Options by designated initialisers, as C++20 has them.
#include <cstring>
#include <tutti/tutti.h>
int main() {
    tu_graph *g;
    if (tu_graph_new(&g) != TU_OK) return 1;
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2, 8, 8, 3));
    x = tu_conv2d(x, .filters = 4, .size = 3, .act = TU_RELU);
    x = tu_mean(x, .axes = TU_AXES(1, 2));
    tu_status status = tu_shape_equal(tu_value_shape(tu_softmax(x, -1)), TU_SHAPE(2, 4)) ? TU_OK : TU_INVALID;
    tu_scope(g, "left") tu_recompute(g) break; // a scope closes by itself, by an exception too
    try {
        tu_scope(g, "thrown") throw 1;
    } catch (int) {
    }
    if (std::strcmp(tu_value_name(tu_name(tu_relu(x), "after")), "after") != 0) status = TU_INVALID;
    tu_graph_free(g);
    return status;
}
PROGRAM
    build_and_run g++ -std=c++20 -Wno-missing-field-initializers "$scratch/options.cc"
fi
