#!/usr/bin/env bash
# Tests what `tutti train` and `tutti bench` do on several processes that they do not do on one: a failure ends all of them
# with one message and one status, rank 0 alone writes, cores are divided, and settings follow the number of processes.
# Run by hosts.sh, on two hosts with two ranks each.
#   check_training.sh TUTTI FAIL_ON_RANKS
set -uo pipefail

tutti=$1 fail_on_ranks=$2 network=${BASH_SOURCE[0]%/*}/failing_network.c
work=$TMPDIR/training
mkdir "$work"
here=(--host "$(hostname):2") # both ranks on the first host
mlp=(train mlp --data generated --base 8 --batch 32 --quiet)

# Every case is a function, which runs in the background and prints what is wrong.
cases=()
start() { # case...
    local case
    for case in "$@"; do
        cases+=("$case")
        "$case" >"$work/$case.problems" 2>&1 &
    done
    wait
}

# run STATUS PATTERN COMMAND...: the command has this status and prints one line of Tutti besides notices, which matches;
# an empty pattern: none.
run() {
    local expected=$1 pattern=$2 log=$work/${FUNCNAME[1]}.log status lines
    shift 2
    timeout 40 "$@" >"$log" 2>&1
    status=$?
    lines=$(grep '^tutti: ' "$log" | grep -v '^tutti: notice: ')
    ((status == expected)) || echo "status $status, expected $expected"
    [[ $lines =~ ^$pattern$ ]] || echo "expected one line that matches: $pattern"
}

nonfinite_step() {
    run 2 "tutti: step [0-9]*: .*first non-finite value: operation .*; the state before the error is saved as checkpoint [0-9]*; [^"$'\n'"]*" \
        mpirun "${here[@]}" -n 2 "$tutti" "${mlp[@]}" --recipe plain --optimizer sgd --rate 1e6 --steps 60 --out "$work/nonfinite"
    compgen -G "$work/nonfinite/checkpoints/step-*.safetensors" >"$work/checkpoints" || echo "no checkpoint"
}

# fails_alike CASE PATTERN: both ranks print the same, which matches.
fails_alike() {
    local log=$work/$1.log
    mpirun "${here[@]}" -n 2 "$fail_on_ranks" "$1" "$work/$1" >"$log" 2>&1
    [[ $(sed 's/^rank [0-9]*: //' "$log" | uniq) =~ ^$2$ && $(wc -l <"$log") == 2 ]] || echo "expected two lines that match: $2"
}

nan() { fails_alike nan "numerical failure: .*input 'images', training image 3 of the data set; the state before the error is saved [^"$'\n'"]*"; }
evaluation() {
    fails_alike evaluation "input/output error: rank 1 on host 'h1': image [0-9]* cannot be read; the state before the error is saved as checkpoint [0-9]*"
}
reading() {
    fails_alike reading "input/output error: rank 1 on host 'h1': image [0-9]* cannot be read; the state before the error is saved as checkpoint [0-9]*"
}

# Rank 1 fails in a step, which the others learn only from its heartbeats: all end with its status.
failing_step() {
    local log=$work/failing_step.log status place='(after step [0-9]+|before its first step)'
    timeout 40 mpirun -n 2 --map-by node "$tutti" train "$network" --data generated --batch 32 --steps 60 --quiet \
        --out "$work/failing" >"$log" 2>&1
    status=$?
    ((status == 2)) || echo "status $status, expected 2"
    grep -Eq "^tutti: rank 0 on host h1: rank 1 \(host h2, device cpu:0\) failed $place: .*the copy is broken.*; last steps: rank 0: " \
        "$log" || echo "rank 0 does not say why rank 1 failed"
}

full_disk() {
    mkdir "$work/small"
    mount -t tmpfs -o size=1m tmpfs "$work/small" || return
    run 1 "tutti: rank 0 on host 'h1': [^"$'\n'"]*No space left on device; after fixing this, continue with [^"$'\n'"]*" \
        mpirun "${here[@]}" -n 2 "$tutti" train mlp --data generated --steps 3 --quiet --out "$work/small/run"
}

missing_weights() {
    run 2 "tutti: rank 0 on host 'h1': cannot read '/nowhere': [^"$'\n'"]*" \
        mpirun "${here[@]}" -n 2 "$tutti" "${mlp[@]}" --steps 3 --init /nowhere --out "$work/missing"
    [[ ! -e $work/missing ]] || echo "a run folder was written"
}

missing_device() {
    run 2 "tutti: [^"$'\n'"]*there is no device 'gpu:9.0/2'[^"$'\n'"]*" \
        mpirun "${here[@]}" -n 2 "$tutti" bench mlp --devices gpu:9
}

# Relative paths: every rank has a working folder of its own.
trace() {
    mkdir "$work/rank0" "$work/rank1"
    # shellcheck disable=SC2016 # expanded by the ranks
    run 0 '' mpirun "${here[@]}" -n 2 sh -c 'cd "$0/rank$OMPI_COMM_WORLD_RANK" && exec "$@"' "$work" \
        "$tutti" "${mlp[@]}" --steps 8 --trace trace.json --trace-steps 2 --out "$work/traced"
    [[ -s $work/rank0/trace.json ]] || echo "rank 0 wrote no trace"
    [[ ! -e $work/rank1/trace.json ]] || echo "rank 1 wrote a trace"
}

# threads RUN: the number of threads in its configuration.
threads() { sed -n 's/.*"threads":\([0-9]*\).*/\1/p' "$1/config.json"; }

# Rank 0 has one core, rank 1 all.
uneven_cores() {
    local core
    core=$(taskset -pc $$ | sed 's/.*: \([0-9]*\).*/\1/')
    run 0 '' mpirun "${here[@]}" -n 1 taskset -c "$core" "$tutti" "${mlp[@]}" --steps 3 --out "$work/uneven" : \
        -n 1 "$tutti" "${mlp[@]}" --steps 3 --out "$work/uneven"
    (($(nproc) == 1)) || [[ $(threads "$work/uneven") == 0 ]] || echo "threads $(threads "$work/uneven"), expected 0"
}

other_number_of_processes() {
    local all half
    all=$(nproc)
    half=$(((all + 1) / 2))
    run 0 "" "$tutti" "${mlp[@]}" --steps 2 --out "$work/automatic"
    run 0 "" "$tutti" "${mlp[@]}" --steps 2 --threads "$all" --out "$work/chosen"
    [[ $(threads "$work/automatic") == "$all" ]] || echo "$(threads "$work/automatic") threads, expected $all"
    run 0 '' mpirun "${here[@]}" -n 2 "$tutti" train "$work/automatic" --resume --quiet
    ((all % 2)) || [[ $(threads "$work/automatic") == "$half" ]] ||
        echo "$(threads "$work/automatic") threads after a resume on two processes, expected $half"
    run 0 '' mpirun "${here[@]}" -n 2 "$tutti" train "$work/chosen" --resume --quiet
    [[ $(threads "$work/chosen") == "$all" ]] || echo "$(threads "$work/chosen") threads, expected those chosen: $all"
}

independent() {
    # shellcheck disable=SC2016 # expanded by the ranks
    run 0 '' mpirun "${here[@]}" -n 2 sh -c 'exec "$@" --seed "$OMPI_COMM_WORLD_RANK" --out "$0/seed$OMPI_COMM_WORLD_RANK"' "$work" \
        "$tutti" "${mlp[@]}" --steps 3 --independent
    for seed in 0 1; do
        grep -q "\"seed\":$seed," "$work/seed$seed/config.json" || echo "no run with seed $seed"
    done
}

# The timeout of a step limits the wait for another process, too, and that process is named. Over the network, where another
# thread than those of the step exchanges the values.
late() {
    local log=$work/late.log
    timeout 40 mpirun -n 2 --map-by node "$fail_on_ranks" late >"$log" 2>&1
    grep -q "^rank 0: lost process: rank 1 (host h2, " "$log" || echo "rank 1 is not named"
}

start nonfinite_step nan evaluation full_disk
start reading failing_step
start missing_weights missing_device trace late
start uneven_cores other_number_of_processes independent

failed=0
for case in "${cases[@]}"; do
    [[ -s $work/$case.problems ]] || continue
    echo "FAILED  $case: $(<"$work/$case.problems")"
    [[ ! -e $work/$case.log ]] || sed 's/^/    /' "$work/$case.log"
    failed=1
done
echo "${#cases[@]} cases"
exit $failed
