#!/usr/bin/env bash
# Tests `tutti launch` with two processes on one host: restart after a lost process, Ctrl-C, errors, and that nothing
# is left of it. Run by hosts.sh --local.
#   check_launch.sh TUTTI
tutti=$1
# shellcheck source=tests/dist/launch_functions.sh
. "$(dirname "${BASH_SOURCE[0]}")/launch_functions.sh"

# Rank 0 is killed: the other one says so, and the run is resumed and ends as if nothing had happened.
a_process_is_killed() {
    local pid
    "$tutti" launch -n 2 -- "${training[@]}" --out killed >killed.out 2>killed.err &
    pid=$!
    wait_for_checkpoint killed 100 "$pid" || { complain 'the run ended before a rank was killed' killed.err; return; }
    kill -KILL "$(find_rank 0 "$pid")"
    wait "$pid"
    expect_status 'a rank was killed' 0 $? killed.err
    expect_line 'a rank was killed' '^\[1\] tutti: rank 1 on host .*: rank 0 \(host .*\) ended unexpectedly' killed.err
    expect_line 'a rank was killed' "launch: a process was killed by signal 9 \(Killed\); restart 1 of 3: resuming 'killed', with 2 processes$" killed.err
    expect_line 'a rank was killed' '^run folder killed, resuming after step [1-9][0-9]* of 600' killed.err
    expect_digest 'a rank was killed' killed.out
}

# Ctrl-C saves the run, which is resumed by hand in one process.
launch_is_interrupted() {
    local pid
    "$tutti" launch -n 2 -- "${training[@]}" --out stopped >stopped.out 2>stopped.err &
    pid=$!
    wait_for_checkpoint stopped 100 "$pid" || { complain 'the run ended before Ctrl-C' stopped.err; return; }
    kill -INT "$pid"
    wait "$pid"
    expect_status 'Ctrl-C' 130 $? stopped.err
    expect_line 'Ctrl-C' '^resume  *tutti train stopped --resume$' stopped.out
    ! grep -q 'launch:\|mpirun' stopped.err || complain 'Ctrl-C: messages about mpirun or a restart' stopped.err
    "$tutti" train stopped --resume >resumed.out 2>resumed.err
    expect_status 'resuming after Ctrl-C' 0 $? resumed.err
    expect_digest 'resuming after Ctrl-C' resumed.out
}

# `tutti launch` itself is killed: its processes end.
launch_is_killed() {
    local pid
    TUTTI_TEST_MARK=$$.left "$tutti" launch -n 2 -- "${training[@]}" --steps 100000 --out left >left.out 2>left.err &
    pid=$!
    wait_for_checkpoint left 100 "$pid" || { complain 'the run ended before launch was killed' left.err; return; }
    grep -lszqxF "TUTTI_TEST_MARK=$$.left" /proc/[0-9]*/environ || complain 'no process has the mark' left.err
    kill -KILL "$pid"
    wait_until_gone "TUTTI_TEST_MARK=$$.left" || complain 'processes are left after launch was killed' left.err
}

# Errors of the processes are reported with their status, and do not lead to a restart.
a_process_fails() {
    "$tutti" launch -n 2 -- train mlp --data missing >fails.out 2>fails.err
    expect_status 'missing data' 2 $? fails.err
    expect_line 'missing data' "^tutti: .*'missing'" fails.err
    ! grep -q 'restart\|mpirun' fails.err || complain 'missing data: messages about mpirun or a restart' fails.err
}

"$tutti" "${training[@]}" --out undisturbed >undisturbed.out 2>undisturbed.err
digest=$(digest_of undisturbed.out)
# At the same time, because most of the time goes to mpirun's delay of one second between two signals.
parts=()
{ a_process_is_killed; exit $failed; } &
parts+=($!)
{ launch_is_interrupted; exit $failed; } &
parts+=($!)
{ launch_is_killed; exit $failed; } &
parts+=($!)
a_process_fails
for part in "${parts[@]}"; do wait "$part" || failed=1; done
exit $failed
