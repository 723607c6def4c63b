#!/usr/bin/env bash
# Runs clang-tidy over every source that BUILD_DIR compiles, one a core, and fails on the first fault of any.
#   tools/tidy.sh BUILD_DIR [--deep]
#
# Nearly all of the time is the static analyzer's, which follows paths until a function has cost it 225,000 states. Most
# functions are done long before; where one is not, 20,000 of them find what is near in a quarter of the time. A source
# that is compiled several times (for each instruction set, say) is looked at once. --deep sets neither limit.
#
# A source that passed is remembered in BUILD_DIR/tidy by a digest of itself, of all headers of ours and of the rules,
# so that a second run looks at what changed alone.
set -euo pipefail
build=$(realpath "$1") depth=${2:-}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
mkdir -p "$build/tidy"

arguments=(--quiet --extra-arg=-Wno-unknown-warning-option)
case $depth in
--deep) database=$build ;;
'')
    database=$build/tidy
    arguments+=(--extra-arg=-Xclang --extra-arg=-analyzer-config --extra-arg=-Xclang --extra-arg=max-nodes=20000)
    # The first command of each file: records are {…} with the file's name in their last line but one.
    awk 'BEGIN { RS = "}"; printf "[" }
         match($0, /"file": "[^"]*"/) && !seen[substr($0, RSTART, RLENGTH)]++ {
             sub(/^[^{]*/, ""); printf "%s%s}", sep, $0; sep = ",\n"
         }
         END { print "]" }' "$build/compile_commands.json" >"$database/compile_commands.json"
    ;;
*) echo "tidy.sh: unknown option '$depth': expected --deep or nothing" >&2; exit 2 ;;
esac

common=$({ clang-tidy --version; echo "$depth"; cat .clang-tidy; find include src tests -name '*.h' -o -name '*.def' | sort | xargs cat; } |
    sha256sum | cut -c1-64)

tidy_one() { # source
    local digest stamp output
    digest=$({ echo "$common"; cat "$1"; } | sha256sum | cut -c1-64)
    stamp=$build/tidy/$digest
    [[ -e $stamp ]] && return 0
    # Warnings are the compilers' affair; -Wno-… that clang does not know must not be a fault here.
    # shellcheck disable=SC2086 # the arguments are words without spaces
    if output=$(clang-tidy -p "$database" $words "$1" 2>&1); then
        touch "$stamp"
    else
        printf '%s\n' "$output" | grep -v 'warnings\? generated\|warnings treated as errors' || true
        return 1
    fi
}
export -f tidy_one
words=${arguments[*]}
export build common database words

# shellcheck disable=SC2016 # $1 is the inner shell's
sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" | sort -u |
    while IFS= read -r file; do printf '%s\0' "${file#"$root"/}"; done |
    xargs -0 -r -P "$(nproc)" -I '{}' bash -c 'tidy_one "$1"' tidy '{}'
