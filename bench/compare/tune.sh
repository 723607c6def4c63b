#!/usr/bin/env bash
# Measures searches:
#   trials   many trials of mlp on mnist by `tutti tune` in one process against as many `tutti train` one after another
#   asha     ASHA over 64 configurations of tutorial-cnn on CIFAR-10 against training all of them to the end: steps, and the
#            validation accuracy of the best
#   devices  a study on two logical CPU devices against one CPU device with one thread
#   bench/compare/tune.sh [PART…]                (default: trials asha)
#
# Needs mnist and cifar10 in the cache ($TUTTI_DATA, else the user's), and libsqlite3.so.0, which a machine without it can be given in
# a folder: SQLITE_FOLDER. Each part ends when its time limit is over; runs that are missing by then are extrapolated, and the
# line says so.
#
# Environment variables and their defaults:
#   TUTTI           build/release/tutti
#   SQLITE_FOLDER            folder with libsqlite3.so.0 (default: the system's)
#   DEVICE          gpu:0    device
#   TOGETHER        8        trials at a time on it, as logical devices
#   STACK           16       trials that a device trains as one program
#   TRIALS          64
#   STEPS           860      steps of a trial of mlp: two epochs
#   EPOCHS          4        epochs of a trial of tutorial-cnn
#   PRECISION       tf32     of mlp
#   CNN_PRECISION   bf16     of tutorial-cnn
#   TIME_LIMIT      240      seconds for each part
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=$(realpath "${TUTTI:-build/release/tutti}")
device=${DEVICE:-gpu:0} together=${TOGETHER:-8} trials=${TRIALS:-64} stack=${STACK:-16} steps=${STEPS:-860} epochs=${EPOCHS:-4}
precision=${PRECISION:-tf32} cnn_precision=${CNN_PRECISION:-bf16} limit=${TIME_LIMIT:-240}
if [[ -n ${SQLITE_FOLDER:-} ]]; then
    sqlite=$(realpath "$SQLITE_FOLDER")
    export LD_LIBRARY_PATH=$sqlite${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
[[ -x $tutti ]] || { echo "program '$tutti' does not exist: build it, or set TUTTI" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

now() { date +%s.%N; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.2f", a / b}'; }
field() { sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" "$2"; } # NAME FILE: a number of a JSON object
logical() { if (($1 > 1)); then echo "$device/$1"; else echo "$device"; fi; }

# Trains one after another until all are done or half of the time limit is over. Sets `seconds` for all trials.
one_after_another() {
    local begin done_count=0 rate
    begin=$(now)
    for ((i = 0; i < trials; i++)); do
        rate=$(awk -v i="$i" -v n="$trials" 'BEGIN {printf "%.6f", 0.001 * 300 ^ (i / n)}')
        "$tutti" train mlp --data mnist --offline --steps "$steps" --precision "$precision" --rate "$rate" --devices "$device" \
            --out "single-$i" -q >/dev/null
        done_count=$((i + 1))
        awk -v a="$begin" -v b="$(now)" -v l="$limit" 'BEGIN {exit !(b - a > l / 2)}' && break
    done
    seconds=$(awk -v a="$begin" -v b="$(now)" -v n="$trials" -v k="$done_count" 'BEGIN {printf "%.2f", (b - a) * n / k}')
    echo "one tutti train after another: $trials runs of $steps steps take $seconds s (measured: $done_count)"
}

search_mlp() { # DEVICES NAME OPTIONS…; sets `seconds`
    local devices=$1 name=$2 begin ended
    shift 2
    begin=$(now)
    timeout "$limit" "$tutti" tune mlp --data mnist --offline --steps "$steps" --precision "$precision" --sampler random \
        --pruner none --try 'rate=log:1e-3:0.3' --trials "$trials" --devices "$devices" --study "$name" --json -q "$@" >"$name.json" || true
    ended=$(field finished "$name.json")
    seconds=$(awk -v a="$begin" -v b="$(now)" -v n="$trials" -v k="${ended:-0}" 'BEGIN {printf "%.2f", k ? (b - a) * n / k : 0}')
    echo "tutti tune on $devices: $trials trials of $steps steps take $seconds s (measured: ${ended:-0})"
}

part_trials() {
    one_after_another
    local single=$seconds
    for count in 1 "$together"; do
        search_mlp "$(logical "$count")" "together-$count"
        echo "trials: tutti tune on $(logical "$count") is $(ratio "$single" "$seconds") times as fast (bar 6)"
    done
    search_mlp "$device" stacked --stack "$stack"
    echo "trials: tutti tune on $device with --stack $stack is $(ratio "$single" "$seconds") times as fast (bar 6)"
}

part_asha() {
    local full best steps_full
    for pruner in none asha; do
        timeout "$limit" "$tutti" tune tutorial-cnn --data cifar10 --offline --epochs "$epochs" --evaluate-every 22 \
            --precision "$cnn_precision" --sampler random --pruner "$pruner" --seed 1 --trials "$trials" \
            --try 'rate=log:1e-4:1,momentum=0:0.99,weight-decay=log:1e-6:1e-2,label-smoothing=0:0.3' \
            --devices "$(logical "$together")" --study "$pruner" --json -q >"$pruner.json" || true
        "$tutti" tune --study "$pruner" --export csv >"$pruner.csv"
        # The column "step" has the steps of each trial; "cost" is the error rate.
        awk -F, 'NR == 1 {for (i = 1; i <= NF; i++) column[$i] = i; next}
            {steps += $column["step"]; n++; c = $column["cost"]; if (c != "" && $2 == "finished" && (best == "" || c + 0 < best + 0)) best = c}
            END {printf "%d %d %.2f\n", n, steps, 100 * (1 - best)}' "$pruner.csv" >"$pruner.sum"
        read -r count steps_now accuracy <"$pruner.sum"
        echo "$pruner: $count trials, $steps_now steps, best validation accuracy $accuracy%, $(field seconds "$pruner.json") s"
        [[ $pruner == none ]] && { steps_full=$steps_now; full=$accuracy; }
        best=$accuracy
    done
    echo "asha: $(ratio "$steps_now" "$steps_full") of the steps (bar 0.25), best $(awk -v a="$best" -v b="$full" 'BEGIN {printf "%+.2f", a - b}') points (bar -0.5)"
}

part_devices() {
    precision=f32
    search_mlp cpu:0 one-thread --threads 1
    local single=$seconds
    search_mlp cpu:0/2 logical
    echo "devices: two logical CPU devices need $(ratio "$seconds" "$single") of the time of one one-thread device (bar 0.6)"
}

for part in "${@:-trials asha}"; do
    for name in $part; do "part_$name"; done
done
