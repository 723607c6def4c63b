#!/usr/bin/env bash
# Tests which signals ranks receive from mpirun. A program that ends cleanly, or reports that a rank has died, relies on
# them (README.md). Run by hosts.sh.
#   check_mpirun.sh MPI_PROBE
set -uo pipefail

probe=$1

# expect_signals LOG RANK NUMBERS: fails unless the rank received these signals. They are sorted, because signals that
# wait for a busy core are not delivered in the order in which they were sent.
expect_signals() {
    local received
    received=$(sed -n "s/^rank 000$2: signal //p" "$1" | sort -n | paste -sd' ')
    [[ $received == "$3" ]] || { echo "FAILED  rank $2 received '$received', expected '$3'"; cat "$1"; return 1; }
}

# Rank 1 is killed: the other one gets SIGCONT and SIGTERM.
a_rank_dies() {
    local log=$TMPDIR/dies status
    mpirun -n 2 "$probe" die 60 >"$log" 2>&1
    status=$?
    ((status == 137)) || { echo "FAILED  a rank was killed: mpirun's status $status, expected 137"; cat "$log"; return 1; }
    grep -q 'rank 1 with PID [0-9]* on node h2 exited on signal 9 (Killed)' "$log" ||
        { echo 'FAILED  mpirun does not name the rank that was killed'; cat "$log"; return 1; }
    expect_signals "$log" 0 '15 18'
}

# mpirun gets SIGUSR1, which it forwards, and SIGINT, after which it ends the ranks by SIGCONT and SIGTERM.
mpirun_is_interrupted() {
    local log=$TMPDIR/interrupted
    mpirun -n 2 "$probe" signals 60 >"$log" 2>&1 &
    wait_for "$log" '^rank.*ready' $! || return
    kill -USR1 $!
    wait_for "$log" '^rank.*signal 10' $! || return
    kill -INT $!
    wait $!
    expect_signals "$log" 0 '10 15 18' && expect_signals "$log" 1 '10 15 18'
}

wait_for() { # log text mpirun
    until [[ $(grep -c "$2" "$1") == 2 ]]; do # lines of both ranks
        kill -0 "$3" 2>/dev/null || { echo "FAILED  mpirun ended without '$2'"; cat "$1"; return 1; }
        sleep 0.05
    done
}

# At the same time, because most of the time goes to mpirun's delay of one second between two signals.
failed=0
a_rank_dies &
first=$!
mpirun_is_interrupted || failed=1
wait $first || failed=1
exit $failed
