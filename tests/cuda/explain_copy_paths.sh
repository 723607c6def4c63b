#!/usr/bin/env bash
# Checks the copy path that `tutti explain` prints for two GPUs with and without peer access, for a collective and for
# a copy.
#   explain_copy_paths.sh TUTTI
set -uo pipefail

tutti=$1 failed=0

expect() { # FAKE_CUDA_PEERS, the expected path, a path that must not occur
    local lines
    lines=$(FAKE_CUDA_COUNT=2 FAKE_CUDA_PEERS=$1 "$tutti" explain mlp --devices gpu:0,gpu:1 --strategy mirrored) || failed=1
    grep -q "^loss/.* $2\$" <<<"$lines" && grep -q "@gpu:0 .* $2\$" <<<"$lines" && ! grep -q " $3\$" <<<"$lines" && return
    echo "FAILED  FAKE_CUDA_PEERS=$1: expected '$2' for the sum and the copy, and no '$3':"
    printf '%s\n' "$lines"
    failed=1
}

expect 1 'peer to peer' 'through the host'
expect 0 'through the host' 'peer to peer'
exit $failed
