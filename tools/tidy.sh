#!/usr/bin/env bash
# Runs clang-tidy over every source that BUILD_DIR compiles, two at a time, and fails on the first fault of any.
#   tools/tidy.sh BUILD_DIR
#
# A source that passed is remembered in BUILD_DIR/tidy by a digest of itself, of all headers of ours and of the rules,
# so that a second run looks at what changed alone.
set -euo pipefail
build=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
mkdir -p "$build/tidy"

common=$({ clang-tidy --version; cat .clang-tidy; find include src tests -name '*.h' -o -name '*.def' | sort | xargs cat; } |
    sha256sum | cut -c1-64)

tidy_one() { # source
    local digest stamp output
    digest=$({ echo "$common"; cat "$1"; } | sha256sum | cut -c1-64)
    stamp=$build/tidy/$digest
    [[ -e $stamp ]] && return 0
    # Warnings are the compilers' affair; -Wno-… that clang does not know must not be a fault here.
    if output=$(clang-tidy --quiet -p "$build" --extra-arg=-Wno-unknown-warning-option "$1" 2>&1); then
        touch "$stamp"
    else
        printf '%s\n' "$output" | grep -v 'warnings\? generated\|warnings treated as errors' || true
        return 1
    fi
}
export -f tidy_one
export build common

# shellcheck disable=SC2016 # $1 is the inner shell's
sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" | sort -u |
    while IFS= read -r file; do printf '%s\0' "${file#"$root"/}"; done |
    xargs -0 -r -P "$(nproc)" -I '{}' bash -c 'tidy_one "$1"' tidy '{}'
