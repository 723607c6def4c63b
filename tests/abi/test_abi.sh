#!/usr/bin/env bash
# Tests abi.sh: it must report changes that break programs compiled earlier, and distinguish them from additions.
#   test_abi.sh INCLUDE LIBTUTTI LIBTUTTI_TRAIN COMPILER
set -uo pipefail

here=$(cd "${BASH_SOURCE[0]%/*}" && pwd)
include=$1 core=$2 train=$3 compiler=$4 failed=0 count=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/lists"
cp "$here"/*.symbols "$here"/*.txt "$work/lists"
export TUTTI_ABI_LISTS=$work/lists

expect() { # CHANGE REGEX_IN_OUTPUT [REGEX_NOT_IN_OUTPUT]
    local output
    count=$((count + 1))
    if output=$("$here/abi.sh" "$work/include" "$core" "$train" "$compiler" 2>&1); then
        echo "FAILED  $1: abi.sh reports no change"
        failed=1
    elif ! grep -qE "$2" <<<"$output" || { [[ -n ${3-} ]] && grep -qE "$3" <<<"$output"; }; then
        printf 'FAILED  %s: expected %s%s, but abi.sh prints:\n%s\n' "$1" "$2" "${3:+ and no $3}" "$output"
        failed=1
    fi
}
edit() { # FILE SED_SCRIPT: edits a new copy of the headers
    rm -rf "$work/include"
    cp -r "$include" "$work/include"
    sed -i "$2" "$work/include/tutti/$1"
    cmp -s "$include/tutti/$1" "$work/include/tutti/$1" && { echo "FAILED  the edit '$2' of $1 changes nothing"; failed=1; }
}
breaking='^  BREAKS OLD PROGRAMS  '

edit run.h '/^typedef struct tu_kernel_report {/,/^}/s/^    uint32_t node_count;.*/    uint64_t inserted;\n&/'
expect 'a field in the middle' "${breaking}field tu_kernel_report.inserted: .*inserted: add fields at the end"
expect 'a field after it' "${breaking}field tu_kernel_report.flops: offset [0-9]+ .* -> offset [0-9]+ "
edit run.h '/^typedef struct tu_kernel_report {/,/^}/s/^} tu_kernel_report;/    uint64_t appended;\n&/'
expect 'a field at the end' '^  addition  *field tu_kernel_report.appended: ' "$breaking"
edit run.h '/^typedef struct tu_kernel_report {/,/^}/s/^    int64_t flops;/    double flops;/'
expect 'a field of another type' "${breaking}field tu_kernel_report.flops: "
edit types.h '/^typedef struct tu_shape {/,/^}/s/^} tu_shape;/    int64_t appended;\n&/'
expect 'a field in a frozen structure' "${breaking}field tu_shape.appended: .*frozen"
edit types.h 's/^    X(F64, "f64", 8) .*/    X(F8, "f8", 1) \\\n&/'
expect 'an element type in the middle' "${breaking}constant TU_F64: 1 -> 2"
edit types.h 's/^    X(I8, "i8", 1)/& \\\n    X(F8, "f8", 1)/'
expect 'an element type at the end' '^  addition  *constant TU_F8: 9' "$breaking"
edit settings.def 's/^TU_SETTING(COUNT, batch,/TU_SETTING(COUNT, inserted, "inserted", 0, "N", 0, 0, 1, UPDATE, "")\n&/'
expect 'a setting in the middle' "${breaking}field tu_train_options.epochs: "
edit settings.def '$a TU_SETTING(COUNT, appended, "appended", 0, "N", 0, 0, 1, DEVICES, "")'
expect 'a setting at the end' '^  addition  *field tu_train_options.appended: ' "$breaking"
edit settings.def '$a #ifdef TU_TRAIN_FIELD\nTU_TRAIN_FIELD(const char *, appended)\n#endif'
expect 'a field of tu_train_options that is no setting' '^  addition  *field tu_train_options.appended: ' "$breaking"
edit ops.h 's/^TU_API tu_value tu_clip(tu_value x, double low/TU_API tu_value tu_clip(tu_value x, float low/'
expect 'a parameter of another type' "${breaking}function tu_clip: "
rm -rf "$work/include"
cp -r "$include" "$work/include"
echo 'symbol tu_vanished : TUTTI_0.1 T' >>"$work/lists/libtutti.symbols"
expect 'a symbol that vanished' "${breaking}symbol tu_vanished is gone"
expect 'the advice' 'tests/abi/update.sh'

((failed)) || echo "$count changes reported"
exit $failed
