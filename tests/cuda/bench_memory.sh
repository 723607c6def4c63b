#!/usr/bin/env bash
# Checks that the planned peak of `tutti bench` counts only the program itself: memory used by others on the GPU, and
# tables of inputs, are reported separately.
#   bench_memory.sh TUTTI
set -uo pipefail

tutti=$1 failed=0
measure() { "$tutti" bench mlp --devices gpu:0 --batch 2 --steps 1 --repeat 1 "$@"; }
number() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" <<<"$2"; } # key, JSON
expect() { # what, actual, expected
    [[ $2 == "$3" ]] && return
    echo "FAILED  $1: $2, expected $3"
    failed=1
}

idle=$(measure --json) && shared=$(FAKE_CUDA_ELSEWHERE=104857600 measure --json) || failed=1
[[ $(number peak_bytes "$idle") -gt 0 ]] || { echo "FAILED  no peak in: $idle"; failed=1; }
expect 'peak with other users of the GPU' "$(number peak_bytes "$shared")" "$(number peak_bytes "$idle")"
expect 'overhead of an empty GPU' "$(number overhead_bytes "$idle")" 0
expect 'overhead with other users' "$(number overhead_bytes "$shared")" 104857600
expect 'tables' "$(number table_bytes "$idle")" 0

text=$(FAKE_CUDA_ELSEWHERE=104857600 measure) || failed=1
grep -qE '^planned peak  [0-9.]+ MiB; plus 100\.0 MiB for context and libraries$' <<<"$text" ||
    { echo "FAILED  overhead not reported separately in:"; printf '%s\n' "$text"; failed=1; }
exit $failed
