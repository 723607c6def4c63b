#!/usr/bin/env bash
# A run folder of an older version, stopped after 6 of 12 steps, is resumed to the same losses, evaluated and
# exported.
#   older_run.sh TUTTI FOLDER
set -uo pipefail
tutti=$1 older=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED  $*"; exit 1; }

cp -r "$older" "$work/run" && chmod -R u+w "$work/run" || fail "cannot copy $older"
"$tutti" train --resume "$work/run" >"$work/log" 2>&1 || fail "not resumed: $(tail -1 "$work/log")"

# "STEP LOSS" of every step; losses to six digits, since another C library may round the last ones differently.
losses() {
    sed -nE 's/^\{"step":([0-9]+),.*"loss":([0-9.]+),"accuracy".*/\1 \2/p' "$1" | awk '{printf "%d %.6g\n", $1, $2}'
}
[[ $(losses "$older/whole_run.jsonl" | wc -l) == 12 ]] || fail "whole_run.jsonl does not have 12 steps"
difference=$(diff <(losses "$older/whole_run.jsonl") <(losses "$work/run/metrics.jsonl")) ||
    fail "other losses than the older version's: ${difference//$'\n'/; }"
"$tutti" eval "$work/run" >"$work/log" 2>&1 || fail "not evaluated: $(tail -1 "$work/log")"
"$tutti" export "$work/run" "$work/a.model" >"$work/log" 2>&1 || fail "not exported: $(tail -1 "$work/log")"
"$tutti" verify "$work/a.model" --devices ref >"$work/log" 2>&1 || fail "not verified: $(tail -1 "$work/log")"
echo "12 steps with the losses of the older version"
