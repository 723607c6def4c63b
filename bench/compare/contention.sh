#!/usr/bin/env bash
# Measures the cost of a competing process: `tutti bench` with one thread per core, without other load, next to a process that keeps
# one core busy, and the same under `nice`. Each is measured with threads that yield (Tutti's default) and with
# threads that spin (libgomp's default).
#   bench/compare/contention.sh [TUTTI [BEFORE]]
#
# Each round runs all variants once, in alternating order; times are medians over the rounds. "spins" is the same
# program with GOMP_SPINCOUNT=300000, libgomp's default, or the program BEFORE, if given. A run is three blocks of
# steps, of which `tutti bench` reports the median. It starts when the machine's cores are idle, so that other load
# does not affect the comparison. The digests of all runs must be the same.
#
# Environment variables and their defaults:
#   ROUNDS       20       number of rounds
#   STEPS        60       steps per block
#   WORKLOAD     mlp      model
#   OPTIONS      ""       more options of `tutti bench`
#   SPINS        300000   GOMP_SPINCOUNT of "spins"
#   NICE_ROUNDS  3        rounds of "spins" under nice, which are slow
#   PATIENCE     900      seconds to wait for idle cores, in total
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti} before=${2:-}
rounds=${ROUNDS:-20} nice_rounds=${NICE_ROUNDS:-3} steps=${STEPS:-60} workload=${WORKLOAD:-mlp}
spins=${SPINS:-300000} patience=${PATIENCE:-900}
read -ra options <<<"${OPTIONS:-}"
for program in "$tutti" ${before:+"$before"}; do
    [[ -x $program ]] || { echo "program '$program' does not exist: build it, or give its path" >&2; exit 2; }
done
scratch=$(mktemp -d)
busy_process=
end_busy_process() {
    [[ -z $busy_process ]] || { kill "$busy_process" && wait "$busy_process"; } 2>/dev/null || true
    busy_process=
}
trap 'end_busy_process; rm -rf "$scratch"' EXIT

# Prints the idle ticks of all cores, and all ticks.
ticks() { awk '/^cpu / {for (i = 2; i <= 9; i++) all += $i; print $5 + $6, all}' /proc/stat; }

# Waits until the cores are idle for 0.2 s.
not_idle=0
wait_for_idle_cores() {
    local idle all idle_before all_before
    while ((SECONDS < patience)); do
        read -r idle_before all_before < <(ticks)
        sleep 0.2
        read -r idle all < <(ticks)
        ((20 * (idle - idle_before) < 19 * (all - all_before))) || return 0
    done
    not_idle=$((not_idle + 1))
}

run() { # VARIANT [COMMAND_PREFIX...]; prints milliseconds per step
    local variant=$1 result
    shift
    local command=("$@" "$tutti")
    if [[ $variant == spins ]]; then
        if [[ $before ]]; then command=("$@" "$before"); else command=(env GOMP_SPINCOUNT="$spins" "$@" "$tutti"); fi
    fi
    result=$("${command[@]}" bench "$workload" --steps "$steps" --repeat 3 --json "${options[@]}")
    sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/' <<<"$result" >>"$scratch/digests"
    sed 's/.*"ms_per_step":\([0-9.]*\).*/\1/' <<<"$result"
}

for ((round = 0; round < rounds; round++)); do
    variants=(spins yields)
    ((round % 2)) && variants=(yields spins)
    for variant in "${variants[@]}"; do
        wait_for_idle_cores
        run "$variant" >>"$scratch/alone-$variant"
        sh -c 'while :; do :; done' &
        busy_process=$!
        run "$variant" >>"$scratch/contended-$variant"
        if [[ $variant == yields ]] || ((round < nice_rounds)); then
            run "$variant" nice -n 19 >>"$scratch/nice-$variant"
        fi
        end_busy_process
    done
done

pick() { # FILE median|minimum
    sort -g "$1" | awk -v which="$2" '{a[NR] = $1} END {print which == "median" ? (a[int((NR + 1) / 2)] + a[int((NR + 2) / 2)]) / 2 : a[1]}'
}
cell() { printf '%.3f (%.3f)' "$(pick "$scratch/$1" median)" "$(pick "$scratch/$1" minimum)"; } # FILE
baseline=$(pick "$scratch/alone-spins" median)
printf '%-26s  %18s  %18s  %s\n' 'ms/step, median (minimum)' spins yields 'speed of yields, relative to spins alone'
for situation in alone contended nice; do
    case $situation in
    alone) name='alone' ;; contended) name='next to a busy process' ;; nice) name='the same, nice 19' ;;
    esac
    printf '%-26s  %18s  %18s  %s\n' "$name" "$(cell "$situation-spins")" "$(cell "$situation-yields")" \
        "$(awk -v a="$baseline" -v b="$(pick "$scratch/$situation-yields" median)" 'BEGIN {printf "%.1f%%", 100 * a / b}')"
done
status=0
if [[ $(sort -u "$scratch/digests" | wc -l) == 1 ]]; then
    echo "$(wc -l <"$scratch/digests") runs, all with the same digest"
else
    echo 'the digests of the runs differ:' >&2
    sort "$scratch/digests" | uniq -c >&2
    status=1
fi
((not_idle == 0)) || echo "$not_idle of $((2 * rounds)) runs started although the cores were not idle"
exit $status
