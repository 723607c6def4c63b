#!/usr/bin/env bash
# What one busy program beside a training costs: `tutti bench` with a thread on every core, alone, beside a program that
# keeps one core busy, and beside it under `nice`; each with threads that give way and with threads that spin, as libgomp's
# do by default.
#   bench/compare/contention.sh [TUTTI [BEFORE]]
#
# All sides take one run a round, in alternating order; times are medians over the rounds. "spins" is the same program with
# GOMP_SPINCOUNT=300000, libgomp's default, or the program BEFORE, where one is given. A run is three blocks of steps, of which
# `tutti bench` tells the median, and begins when the machine's cores are idle: what others do on it is no part of the
# comparison. The digests of all runs must be the same.
# Changed by the environment: ROUNDS 20, STEPS 60 (in a block), WORKLOAD mlp, OPTIONS "" (more of `tutti bench`), SPINS 300000,
#   NICE_ROUNDS 3 (of spinning under nice, which takes long), PATIENCE 900 (seconds to wait for idle cores, all together)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti} before=${2:-}
rounds=${ROUNDS:-20} nice_rounds=${NICE_ROUNDS:-3} steps=${STEPS:-60} workload=${WORKLOAD:-mlp}
spins=${SPINS:-300000} patience=${PATIENCE:-900}
read -ra options <<<"${OPTIONS:-}"
for program in "$tutti" ${before:+"$before"}; do
    [[ -x $program ]] || { echo "there is no program '$program': build it, or give its path" >&2; exit 2; }
done
scratch=$(mktemp -d)
neighbour=
end_neighbour() {
    [[ -z $neighbour ]] || { kill "$neighbour" && wait "$neighbour"; } 2>/dev/null || true
    neighbour=
}
trap 'end_neighbour; rm -rf "$scratch"' EXIT

# Ticks that all cores were idle, and all ticks.
ticks() { awk '/^cpu / {for (i = 2; i <= 9; i++) all += $i; print $5 + $6, all}' /proc/stat; }

# Until others leave the cores alone for 0.2 s.
wanting=0
wait_for_idle_cores() {
    local idle all idle_before all_before
    while ((SECONDS < patience)); do
        read -r idle_before all_before < <(ticks)
        sleep 0.2
        read -r idle all < <(ticks)
        ((20 * (idle - idle_before) < 19 * (all - all_before))) || return 0
    done
    wanting=$((wanting + 1))
}

run() { # way, a command to start the program with; prints milliseconds a step
    local way=$1 result
    shift
    local command=("$@" "$tutti")
    if [[ $way == spins ]]; then
        if [[ $before ]]; then command=("$@" "$before"); else command=(env GOMP_SPINCOUNT="$spins" "$@" "$tutti"); fi
    fi
    result=$("${command[@]}" bench "$workload" --steps "$steps" --repeat 3 --json "${options[@]}")
    sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/' <<<"$result" >>"$scratch/digests"
    sed 's/.*"ms_per_step":\([0-9.]*\).*/\1/' <<<"$result"
}

for ((round = 0; round < rounds; round++)); do
    ways=(spins gives_way)
    ((round % 2)) && ways=(gives_way spins)
    for way in "${ways[@]}"; do
        wait_for_idle_cores
        run "$way" >>"$scratch/alone-$way"
        sh -c 'while :; do :; done' &
        neighbour=$!
        run "$way" >>"$scratch/beside-$way"
        if [[ $way == gives_way ]] || ((round < nice_rounds)); then
            run "$way" nice -n 19 >>"$scratch/nice-$way"
        fi
        end_neighbour
    done
done

pick() { # file, which: the median or the least
    sort -g "$1" | awk -v which="$2" '{a[NR] = $1} END {print which == "median" ? (a[int((NR + 1) / 2)] + a[int((NR + 2) / 2)]) / 2 : a[1]}'
}
cell() { printf '%.3f (%.3f)' "$(pick "$scratch/$1" median)" "$(pick "$scratch/$1" least)"; } # file
quiet=$(pick "$scratch/alone-spins" median)
printf '%-26s  %18s  %18s  %s\n' 'ms a step, median (least)' spins 'gives way' 'gives way, of the speed of spinning alone'
for place in alone beside nice; do
    case $place in
    alone) name='alone' ;; beside) name='beside a busy program' ;; nice) name='the same, nice 19' ;;
    esac
    printf '%-26s  %18s  %18s  %s\n' "$name" "$(cell "$place-spins")" "$(cell "$place-gives_way")" \
        "$(awk -v a="$quiet" -v b="$(pick "$scratch/$place-gives_way" median)" 'BEGIN {printf "%.1f%%", 100 * a / b}')"
done
status=0
if [[ $(sort -u "$scratch/digests" | wc -l) == 1 ]]; then
    echo "$(wc -l <"$scratch/digests") runs, one digest"
else
    echo 'the runs had several digests:' >&2
    sort "$scratch/digests" | uniq -c >&2
    status=1
fi
((wanting == 0)) || echo "$wanting runs of $((2 * rounds)) began though the cores were not idle: others use this machine"
exit $status
