#!/usr/bin/env bash
# Tests the first steps of a new user in a fresh clone: ./quickstart, `cmake --install` to a folder, and a program
# that is compiled and run with the commands of docs/api.md. Finally the installed tree is moved and used from there.
#   first_run.sh SOURCE_DIR SCRATCH_DIR CUDA_DEVICE_IS_BUILT_HERE
# The clone contains uncommitted changes, but no untracked files. No internet connection is needed.
set -euo pipefail

source=$1 scratch=$2 cuda=$3
say() { printf '%s\n' "$*"; }

[[ $(git -C "$source" rev-parse --show-prefix 2>&1) == '' ]] || {
    say "skipped: $source is not the root of a git checkout, so it cannot be cloned"
    exit 77
}
rm -rf "$scratch"
mkdir -p "$scratch"
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
export HOME=$scratch/home
mkdir "$HOME"

git clone -q --depth 1 "file://$source" clone 2>clone.log || { cat clone.log; exit 1; }
git -C "$source" diff --binary HEAD >changes
[[ ! -s changes ]] || git -C clone apply ../changes

# ---- quickstart ----
cd clone
./quickstart --data generated -- --steps 20 >../quickstart.log 2>&1 || {
    tail -n 60 ../quickstart.log
    untracked=$(git -C "$source" ls-files --others --exclude-standard)
    [[ -z $untracked ]] || say "not in the clone, because they are untracked: ${untracked//$'\n'/, }"
    exit 1
}
cat ../quickstart.log
grep -qE '^run +runs/tutorial-cnn-generated-1$' ../quickstart.log
grep -q '^Done in ' ../quickstart.log
if [[ $cuda == yes && ! -e build/release/libtutti_cuda.so ]]; then
    say 'FAILED  the CUDA device can be built here, but ./quickstart did not build it'
    exit 1
fi

# ---- The commands of docs/api.md ----
cat >program.c <<'PROGRAM'
#include <stdio.h>
#include <tutti/tutti.h>

int main(void) {
    tu_graph *graph;
    if (tu_graph_new(&graph) != TU_OK) return 1;
    tu_value x = tu_input(graph, "x", TU_F32, TU_SHAPE(4)), y = tu_sum(tu_mul(x, x));
    tu_program *program;
    tu_state *state;
    float result;
    if (tu_compile(graph, &program, .devices = "cpu", .fetch = &y, .fetch_count = 1) != TU_OK ||
        tu_state_new(graph, &state) != TU_OK ||
        tu_run(program, state, 1, &(tu_feed){x, (float[]){1, 2, 3, 4}}, (void *[]){&result}) != TU_OK) {
        fprintf(stderr, "%s\n", tu_message());
        return 2;
    }
    printf("%g\n", (double)result);
    return 0;
}
PROGRAM
# The code block that contains the compiler command, with DIR replaced by the prefix.
lines=$(awk '/^```/ {if (block ~ /\ncc program\.c /) printf "%s", block; block = "\n"; next} {block = block $0 "\n"}' \
    "$source/docs/api.md")
[[ -n $lines ]] || { say 'FAILED  docs/api.md has no block with a line "cc program.c ..."'; exit 1; }
say "$lines"
prefix=$scratch/prefix
bash -euc "${lines//DIR/"$prefix"}" >lines.log 2>&1 || { cat lines.log; exit 1; }
[[ $(tail -n 1 lines.log) == 30 ]] || { say 'FAILED  expected ./program to print 30:'; cat lines.log; exit 1; }

# ---- The installed tree, moved ----
mv "$prefix" "$scratch/moved"
rm -rf "$scratch/clone"
cd "$scratch"
moved/bin/tutti train mlp --data generated --steps 1 --quiet --devices cpu --out run >/dev/null
for library in libtutti.so.0 libtutti_train.so.0; do
    [[ $(ldd moved/bin/tutti) == *"$scratch/moved/"*"$library"* ]]
done
if [[ $cuda == yes ]]; then # the plug-in is found next to the library; whether a GPU is usable depends on the machine
    moved/bin/tutti devices | grep '^gpu:0 '
fi
say 'ok'
