#!/usr/bin/env bash
# Runs clang-tidy over every source that BUILD_DIR compiles, one per core, and fails if it reports anything.
#   tools/tidy.sh BUILD_DIR [--deep]
#
# Most of the time goes to the static analyzer, which by default explores up to 225,000 nodes per function. Few functions
# reach that; 20,000 nodes take a quarter of the time. Without --deep the limit is 20,000, and a source that is compiled
# several times (once per instruction set) is checked once. --deep removes both restrictions.
#
# A source that passed is recorded in BUILD_DIR/tidy by a digest of the source, all our headers and the rules, so that a
# second run checks only what has changed.
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
    # Keep the first compile command of each file.
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
    # Compiler warnings are tested elsewhere; -Wno-… options that clang does not know must not fail here.
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
