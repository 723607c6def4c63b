#!/usr/bin/env bash
# Tests a network so slow that a collective takes longer than --collective-timeout: as long as parts of it arrive, nothing is
# late, and the run has the bits of one in shared memory. A rank that is stopped meanwhile is named as always.
# Run by hosts.sh, on two hosts with a rank each and a rate limit.
#   check_slow_network.sh TUTTI
set -uo pipefail

tutti=$1
timeout=1 # of a collective, in seconds; its values take longer
work=$TMPDIR/slow
mkdir "$work"
train=(train mlp --data generated --base 384 --batch 32 --validation 0 --quiet --collective-timeout $timeout)

fail() {
    echo "FAILED  $*"
    sed 's/^/    /' "$log"
    exit 1
}

digest_of() { sed -n 's/^digest *//p' "$1"; }

log=$work/shared.log
mpirun --host "$(hostname):2" -n 2 "$tutti" "${train[@]}" --steps 8 --out "$work/shared" >"$log" 2>&1 || fail "status $?"
digest=$(digest_of "$log")

log=$work/slow.log
mpirun -n 2 "$tutti" "${train[@]}" --steps 8 --trace "$work/trace.json" --trace-steps 2 --out "$work/slow" >"$log" 2>&1 ||
    fail "status $?"
[[ $digest && $(digest_of "$log") == "$digest" ]] || fail "digest $(digest_of "$log"), expected $digest"
# Otherwise the test shows nothing.
longest=$(sed -n 's/^ *\([0-9]*\)\.[0-9]* .* collective [0-9].*/\1/p' "$log" | sort -n | tail -n 1) # in milliseconds
((${longest:-0} > 1000 * timeout)) || fail "the longest collective took ${longest:-no} ms, expected more than the timeout"

log=$work/stopped.log
mpirun -n 2 "$tutti" "${train[@]}" --steps 100 --out "$work/stopped" >"$log" 2>&1 &
mpirun=$!
until [[ -e $work/stopped/metrics.jsonl ]]; do
    kill -0 $mpirun 2>/dev/null || fail "mpirun has ended before the first step"
    sleep 0.1
done
sleep 5
victim=$(pgrep -f "^$tutti .*$work/stopped" | while read -r pid; do
    [[ $(nsenter --target "$pid" --uts hostname) == "$(hostname)" ]] || echo "$pid"
done)
kill -STOP "${victim:?}"
wait $mpirun
status=$?
((status == 4)) || fail "status $status, expected 4"
silence=$(sed -n 's/^tutti: rank 0 on host h1: rank 1 (host h2, device cpu:0) has not answered for \([0-9.]* s\).*/\1/p' "$log")
[[ $silence ]] || fail "rank 1 is not named"
# What it had sent before still arrived, and counted as progress.
echo "longest collective $longest ms, timeout $timeout s; the stopped rank was named when it had not answered for $silence"
