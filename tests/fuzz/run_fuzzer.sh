#!/usr/bin/env bash
# Runs one libFuzzer program for TUTTI_FUZZ_SECONDS (default 600).
#   run_fuzzer.sh PROGRAM SEED_CORPUS WORK_DIR
# New inputs and crashes are written to WORK_DIR, not to the source tree. To keep a crash as a regression test,
# minimise it (PROGRAM -minimize_crash=1 FILE) and copy it to SEED_CORPUS, whose files every preset replays.
set -euo pipefail

program=$1 seeds=$2 work=$3
mkdir -p "$work/corpus"
exec "$program" \
    -max_total_time="${TUTTI_FUZZ_SECONDS:-600}" \
    -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$work/" \
    "$work/corpus" "$seeds"
