#!/usr/bin/env bash
# Checks that `cmake --install` installs everything: C and C++ programs find both libraries with pkg-config and
# CMake's find_package, link and run; the installed program runs, also after the tree was moved. No installed file
# looks for libraries in the current folder. A device plug-in finds the kit; every header of the kit compiles alone, and
# the archive needs only what libtutti.so exports.
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
[[ $(pkg-config --modversion tutti_kit) == "$version" ]]
for library in tutti tutti_train; do
    [[ $(pkg-config --modversion $library) == "$version" ]]
    [[ -e $(pkg-config --variable=libdir $library)/lib$library.so.0 ]]
done

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

cat >"$scratch/training.c" <<'PROGRAM'
/* Calls both libraries; tu_message() of one returns the error of the other. */
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

int main(int argc, char **argv) {
    tu_dataset *data = NULL;
    if (argc != 2 || strcmp(tu_version(), argv[1]) != 0) return 1;
    if (tu_dataset_open_with("/no/such/folder", &data, NULL) == TU_OK) return 2;
    if (!strstr(tu_message(), "/no/such/folder")) return 3;
    if (tu_dataset_open_with("generated", &data, NULL) != TU_OK) return 4;
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    tu_dataset_describe(data, &info);
    printf("%d classes\n", (int)info.classes);
    tu_dataset_free(data);
    return 0;
}
PROGRAM

build_and_run() { # PKG_CONFIG_NAME COMPILER OPTIONS_AND_SOURCES...
    local library=$1
    shift
    # shellcheck disable=SC2046 # the flags are words
    "$@" -Wall -Wextra -Werror -o "$scratch/program" $(pkg-config --cflags --libs "$library")
    "$scratch/program" "$version"
}

languages=C
build_and_run tutti "$compiler" -std=c17 -pedantic "$scratch/program.c"
build_and_run tutti_train "$compiler" -std=c17 -pedantic "$scratch/training.c"
if command -v g++ >/dev/null; then
    languages='C CXX'
    cp "$scratch/program.c" "$scratch/program.cc"
    cp "$scratch/training.c" "$scratch/training.cc"
    build_and_run tutti g++ -std=c++17 "$scratch/program.cc"
    build_and_run tutti_train g++ -std=c++17 "$scratch/training.cc"
    cat >"$scratch/options.cc" <<'PROGRAM'
// Options with C++20's designated initialisers.
#include <cstring>
#include <tutti/tutti.h>
int main() {
    tu_graph *g;
    if (tu_graph_new(&g) != TU_OK) return 1;
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2, 8, 8, 3));
    x = tu_conv2d(x, .filters = 4, .size = 3, .act = TU_RELU);
    x = tu_mean(x, .axes = TU_AXES(1, 2));
    tu_status status = tu_shape_equal(tu_value_shape(tu_softmax(x, -1)), TU_SHAPE(2, 4)) ? TU_OK : TU_INVALID;
    tu_scope(g, "left") tu_recompute(g) break; // break, and an exception below, close the scope
    try {
        tu_scope(g, "thrown") throw 1;
    } catch (int) {
    }
    if (std::strcmp(tu_value_name(tu_name(tu_relu(x), "after")), "after") != 0) status = TU_INVALID;
    tu_graph_free(g);
    return status;
}
PROGRAM
    build_and_run tutti g++ -std=c++20 -Wno-missing-field-initializers "$scratch/options.cc"
fi

# ---- The kit ----
sources=$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd) # only for the plug-in itself
read -ra kit_flags <<<"$(pkg-config --cflags tutti_kit)"
read -ra kit_libraries <<<"$(pkg-config --libs tutti_kit)"
headers=$(cd "$scratch/prefix/include/tutti/kit" && find . -name '*.h' | sed 's#^\./##')
[[ $headers == *device/kit/kit.h* ]]
while read -r header; do
    printf '#include "%s"\n' "$header" >"$scratch/alone.c"
    "$compiler" -std=c17 -Wall -Wextra -Werror "${kit_flags[@]}" -c "$scratch/alone.c" -o "$scratch/alone.o"
done <<<"$headers"
"$compiler" -std=c17 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared "${kit_flags[@]}" -I"$sources/examples" \
    "$sources/tests/device/kit_plugin.c" -o "$scratch/checked.so" \
    -Wl,-z,defs -Wl,--whole-archive "${kit_libraries[@]}" -Wl,--no-whole-archive -lm
[[ $(nm -D --defined-only "$scratch/checked.so") != *tu__* ]] # the plug-in's copy of the kit is hidden
TUTTI_CUDA=off TUTTI_DEVICES=$scratch/checked.so "$scratch/prefix/bin/tutti" devices | grep checked:0

# ---- CMake ----
mkdir "$scratch/project"
cat >"$scratch/project/CMakeLists.txt" <<PROJECT
cmake_minimum_required(VERSION 3.16)
project(outside LANGUAGES $languages)
find_package(Tutti ${version%.*} REQUIRED COMPONENTS tutti train kit)
find_package(Tutti 99 QUIET)
if(Tutti_FOUND)
  message(FATAL_ERROR "version 99 was found, which does not exist")
endif()
find_package(Tutti QUIET COMPONENTS trumpets)
if(Tutti_FOUND)
  message(FATAL_ERROR "a component was found that does not exist")
endif()
set(CMAKE_CXX_STANDARD 17)
set(suffix_C c)
set(suffix_CXX cc)
foreach(language $languages)
  add_executable(program_\${language} ../program.\${suffix_\${language}})
  target_link_libraries(program_\${language} PRIVATE Tutti::tutti)
  add_executable(training_\${language} ../training.\${suffix_\${language}})
  target_link_libraries(training_\${language} PRIVATE Tutti::train)
endforeach()
add_library(checked MODULE $sources/tests/device/kit_plugin.c)
target_include_directories(checked PRIVATE $sources/examples)
target_link_libraries(checked PRIVATE Tutti::kit)
PROJECT
unset PKG_CONFIG_PATH
{
    "$cmake" -S "$scratch/project" -B "$scratch/outside" -DCMAKE_C_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$scratch/prefix" &&
        "$cmake" --build "$scratch/outside"
} >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
for language in $languages; do
    "$scratch/outside/program_$language" "$version"
    "$scratch/outside/training_$language" "$version"
done
TUTTI_CUDA=off TUTTI_DEVICES=$scratch/outside/libchecked.so "$scratch/prefix/bin/tutti" devices | grep checked:0
# A program that uses only graphs is not linked with the training library.
[[ $(ldd "$scratch/outside/program_C") != *libtutti_train* ]]
