#!/usr/bin/env bash
# The planned peak that `tutti bench` prints of a card is the program's own, whatever else lies on the card: what was gone from
# it before, and tables of inputs, are told apart.
#   bench_memory.sh TUTTI
set -uo pipefail

tutti=$1 failed=0
measure() { "$tutti" bench mlp --devices gpu:0 --batch 2 --steps 1 --repeat 1 "$@"; }
number() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" <<<"$2"; } # key, JSON
expect() { # what, given, expected
    [[ $2 == "$3" ]] && return
    echo "FAILED  $1: $2, expected $3"
    failed=1
}

alone=$(measure --json) && beside=$(FAKE_CUDA_ELSEWHERE=104857600 measure --json) || failed=1
[[ $(number peak_bytes "$alone") -gt 0 ]] || { echo "FAILED  no peak in: $alone"; failed=1; }
expect 'peak beside others' "$(number peak_bytes "$beside")" "$(number peak_bytes "$alone")"
expect 'overhead of an empty card' "$(number overhead_bytes "$alone")" 0
expect 'overhead beside others' "$(number overhead_bytes "$beside")" 104857600
expect 'tables' "$(number table_bytes "$alone")" 0

text=$(FAKE_CUDA_ELSEWHERE=104857600 measure) || failed=1
grep -qE '^planned peak  [0-9.]+ MiB; beside it 100\.0 MiB for context and libraries$' <<<"$text" ||
    { echo "FAILED  not told apart in:"; printf '%s\n' "$text"; failed=1; }
exit $failed
