#!/usr/bin/env bash
# Slows one of four ranks down, by stopping it for a moment again and again: the summary and the metrics name it. It also has
# a lower priority, since on busy cores a process that is stopped for most of the time gets as much of them as the others.
# Run by hosts.sh --local.
#   check_slow_rank.sh TUTTI
set -uo pipefail

tutti=$1 slow=2 out=$TMPDIR/run log=$TMPDIR/log

# Stops a process for 8 ms of 10, until it has ended. The periods are much shorter than a step: else the rank would often
# be stopped when a collective ends, and so seem to wait for others.
slow_down() {
    local never
    exec {never}<> <(:)
    while kill -STOP "$1" 2>/dev/null; do
        read -rt 0.008 -u "$never" # sleep would be another process
        kill -CONT "$1"
        read -rt 0.002 -u "$never"
    done
}

# shellcheck disable=SC2016 # expanded in the ranks
OUT=$out SLOW=$slow mpirun -x OUT -x SLOW -n 4 sh -c 'echo $$ >$OUT.$OMPI_COMM_WORLD_RANK
    [ $OMPI_COMM_WORLD_RANK != $SLOW ] || renice -n 19 -p $$ >$OUT.priority
    exec "$0" "$@" --out $OUT' "$tutti" train tutorial-cnn --data generated --steps 60 --batch 64 --validation 0 --json >"$log" 2>&1 &
until grep -qs '^run folder' "$log"; do
    kill -0 $! 2>/dev/null || { cat "$log"; exit 1; }
    sleep 0.01
done
slow_down "$(<"$out.$slow")"
wait $! || { cat "$log"; exit 1; }

failed=0
# of a line of JSON: field NAME
field() { sed -n "s/.*\"$1\": *\(-\{0,1\}[0-9.]*\).*/\1/p" | tail -n 1; }
for name in slow_rank worst_wait_rank; do
    found=$(grep '^{' "$log" | field $name)
    [[ $found == "$slow" ]] || { echo "FAILED  the summary's $name is '$found', expected $slow"; failed=1; }
done
found=$(field slow_rank <"$out/metrics.jsonl")
[[ $found == "$slow" ]] || { echo "FAILED  slow_rank in metrics.jsonl is '$found', expected $slow"; failed=1; }
((failed == 0)) || { cat "$log"; tail -n 3 "$out/metrics.jsonl"; }
exit $failed
