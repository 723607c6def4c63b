#!/usr/bin/env bash
# Checks that the program and the libraries are hardened: full RELRO, position-independent, stack protector, FORTIFY, no
# executable stack, no RUNPATH with the current folder (runpaths.sh), no test hooks.
#   hardening.sh TUTTI LIBRARY...
set -uo pipefail

failed=0
complain() {
    echo "FAILED  $*"
    failed=1
}
for file in "$@"; do
    [[ -e $file ]] || { complain "$file does not exist"; continue; }
    headers=$(readelf -lW "$file") dynamic=$(readelf -dW "$file") symbols=$(nm -D "$file")
    grep -q 'GNU_RELRO' <<<"$headers" || complain "$file has no RELRO segment"
    grep -qE 'BIND_NOW|Flags:.*NOW' <<<"$dynamic" || complain "$file binds lazily: expected -z now (full RELRO)"
    grep -qE 'GNU_STACK .* RWE' <<<"$headers" && complain "$file has an executable stack"
    grep -qE 'file type is DYN|\(Position-Independent|DYN \(' <<<"$headers" || complain "$file is not position-independent"
    grep -q '__stack_chk_fail' <<<"$symbols" || complain "$file has no stack protector"
    grep -q '__[a-z]*_chk@' <<<"$(grep -v stack_chk <<<"$symbols")" || complain "$file has no checked copies (_FORTIFY_SOURCE)"
    grep -q 'TUTTI_CUDA_FAIL\|FAKE_CUDA_FAIL' "$file" && complain "$file has the fault injection of the tests"
done
(($#)) || complain 'no files given'
((failed)) || echo "$# files are hardened"
exit $failed
