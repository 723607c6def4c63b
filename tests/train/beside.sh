#!/usr/bin/env bash
# Several processes at once: evaluations and predictions beside a training, and two or more processes in one run folder, one
# cache and one study. One of them waits or is refused, and nothing is lost.
#   beside.sh TUTTI [TIMES [CALLS]]      TIMES trainings (default 2), each with CALLS calls beside it (default 10)
set -uo pipefail

tutti=$(realpath "$1") times=${2:-2} calls=${3:-10}
# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/small_data.sh"
failures=0
fail() { echo "FAILED  $*"; ((failures++)); }

network=(mlp -d "$data" --base 8 --batch 32 --threads 1)
cd "$scratch" || exit 1
"$tutti" data sample generated -n 2 -o pictures >/dev/null || exit 1

# ---- Calls beside a training ----

call() { # NUMBER
    case $(($1 % 4)) in
    0) "$tutti" eval run --threads 1 ;;
    1) "$tutti" predict run pictures/*.png --threads 1 ;;
    2) "$tutti" eval run --checkpoint best --threads 1 --json ;;
    3) "$tutti" predict run pictures/*.png --checkpoint best --threads 1 --json ;;
    esac >out 2>err
}

calls_beside_training() {
    local training status i failed=0
    rm -rf run
    env --default-signal=TERM "$tutti" train "${network[@]}" --epochs 1000000 --checkpoint-every 2 --evaluate-every 4 -q \
        -o run >training 2>&1 &
    training=$!
    until [[ -e run/checkpoints/best.safetensors ]]; do
        kill -0 $training 2>/dev/null || { fail "the training ended: $(tail -n 1 training)"; return; }
        sleep 0.02
    done
    for ((i = 0; i < calls; i++)); do
        call "$i" && [[ -s out && ! -s err ]] && continue
        fail "call $i beside a training: $(tail -n 1 err)"
        ((failed++))
    done
    kill -TERM $training
    wait $training
    status=$?
    [[ $status == 130 ]] || fail "the training ended with status $status: $(tail -n 1 training)"
    echo "$calls calls beside $(sed -n 's/^steps *//p' training): $failed failures"
}

for ((t = 0; t < times; t++)); do calls_beside_training; done

# ---- One run folder ----

# Starts `count` processes at once, waits for them, and prints their statuses, sorted.
all_at_once() { # COUNT COMMAND...
    local count=$1 i processes=() statuses=()
    shift
    for ((i = 0; i < count; i++)); do
        "$@" >"out.$i" 2>"err.$i" &
        processes+=($!)
    done
    for i in "${processes[@]}"; do
        wait "$i"
        statuses+=($?)
    done
    printf '%s\n' "${statuses[@]}" | sort | tr '\n' ' '
}

one_run_folder() {
    local statuses i
    statuses=$(all_at_once 4 "$tutti" train "${network[@]}" --steps 200 --checkpoint-every 20 -q -o shared)
    [[ $statuses == '0 2 2 2 ' ]] || fail "four trainings in one new folder ended with the statuses $statuses"
    for i in 0 1 2 3; do
        grep -q '^digest' "out.$i" || grep -qE "^tutti: .*('shared'|already contains a run|another process)" "err.$i" ||
            fail "a refused training says: $(head -n 1 "err.$i")"
    done
    grep -h '^digest' out.? | cmp -s - whole.digest || fail 'the training in the shared folder has another digest'

    "$tutti" train "${network[@]}" --steps 60 --checkpoint-every 20 -q -o again >/dev/null || fail 'a training failed'
    rm again/checkpoints/step-6*
    statuses=$(all_at_once 4 "$tutti" train again --resume -q)
    [[ $statuses =~ ^0\ [02]\ [02]\ [02]\ $ ]] || fail "four resumptions of one run ended with the statuses $statuses"
    echo "one run folder: $failures failures so far"
}

# ---- One cache ----

one_cache() {
    local statuses i
    awk 'BEGIN { print "x,c,y"; for (i = 0; i < 20000; i++) print i % 97 "," "c" i % 7 "," i % 3 }' >table.csv
    for ((i = 0; i < 2; i++)); do
        statuses=$(all_at_once 6 "$tutti" data info table.csv)
        [[ $statuses == '0 0 0 0 0 0 ' ]] || fail "six conversions of one table ended with the statuses $statuses"
        [[ $(sort -u out.? | wc -l) == $(sort -u out.0 | wc -l) ]] || fail 'conversions of one table differ'
        [[ $(find home/.cache -name 'table_csv-*.tutti' | wc -l) == $((1 + i)) ]] || fail 'the cache does not have one file for each table'
        [[ -z $(find home/.cache -name '.tutti-*') ]] || fail 'a conversion left temporary files'
        sed -i 's/^3,/4,/' table.csv
    done
    echo "one cache: $failures failures so far"
}

# ---- One study ----

one_study() {
    local statuses trials=("${network[@]}" --steps 20 --evaluate-every 10 --pruner none --sampler grid
        --try 'rate=0.1|0.01|0.001|0.0001,momentum=0|0.9') i
    "$tutti" tune "${trials[@]}" --study alone -q >/dev/null || fail 'a search failed'
    statuses=$(all_at_once 2 "$tutti" tune "${trials[@]}" --study both -q)
    [[ $statuses == '0 0 ' ]] || fail "two searches that begin one study ended with the statuses $statuses: $(cat err.?)"
    "$tutti" tune "${trials[@]}" --study workers -q >out 2>&1 &
    until "$tutti" tune --status --study workers >/dev/null 2>&1; do sleep 0.02; done
    statuses=$(all_at_once 3 "$tutti" tune --worker --study workers --threads 1 -q)
    wait $! || fail "a search with workers beside it failed: $(tail -n 1 out)"
    [[ $statuses == '0 0 0 ' ]] || fail "three workers of one study ended with the statuses $statuses: $(cat err.?)"
    for i in alone both workers; do "$tutti" tune --study $i --export csv | cut -d, -f1-7 >$i.csv; done
    [[ $(grep -c ',finished,' workers.csv) == 8 ]] || fail "not all trials of the study are finished"
    cmp -s alone.csv workers.csv || fail "the workers' trials differ from those of one process"
    cmp -s alone.csv both.csv || fail "the trials of a study that two began differ from those of one process"
    echo "one study: $failures failures so far"
}

"$tutti" train "${network[@]}" --steps 200 --checkpoint-every 20 -q -o whole | grep '^digest' >whole.digest
one_run_folder
one_cache
one_study
((failures == 0))
