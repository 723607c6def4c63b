#!/usr/bin/env bash
# What `tutti explain` says of the way between two cards, which do or do not reach each other's memory: of what they sum up
# together, and of what is copied from one to the other.
#   explain_ways.sh TUTTI
set -uo pipefail

tutti=$1 failed=0

expect() { # peers, the way expected, what no line says
    local lines
    lines=$(FAKE_CUDA_COUNT=2 FAKE_CUDA_PEERS=$1 "$tutti" explain mlp --devices gpu:0,gpu:1 --strategy mirrored) || failed=1
    grep -q "^loss/.* $2\$" <<<"$lines" && grep -q "@gpu:0 .* $2\$" <<<"$lines" && ! grep -q " $3\$" <<<"$lines" && return
    echo "FAILED  FAKE_CUDA_PEERS=$1: expected '$2' of the sum and of the copy, and nowhere '$3':"
    printf '%s\n' "$lines"
    failed=1
}

expect 1 'peer to peer' 'through the host'
expect 0 'through the host' 'peer to peer'
exit $failed
