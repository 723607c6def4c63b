#!/usr/bin/env bash
# Tests `tutti launch` in jobs of Slurm on two hosts with two CPUs each: a rank is killed, SIGINT, and scancel. Run by
# hosts.sh and slurm.sh.
#   check_launch_slurm.sh TUTTI
tutti=$1
# shellcheck source=tests/dist/launch_functions.sh
. "$(dirname "${BASH_SOURCE[0]}")/launch_functions.sh"

# A rank, a child of Slurm's daemon for the job step.
any_rank() {
    local daemon
    for daemon in $(pgrep -x slurmstepd); do pgrep -x -P "$daemon" tutti; done | tail -n 1
}

a_process_is_killed() {
    local pid
    salloc -Q -n 4 "$tutti" launch -- "${training[@]}" --out killed >killed.out 2>killed.err &
    pid=$!
    wait_for_checkpoint killed 100 "$pid" || { complain 'the run ended before a rank was killed' killed.err; return; }
    kill -KILL "$(any_rank)"
    wait "$pid"
    expect_status 'a rank was killed' 0 $? killed.err
    expect_line 'a rank was killed' "launch: a process was killed by signal 9 \(Killed\); restart 1 of 3: resuming 'killed', with 4 processes$" killed.err
    expect_line 'a rank was killed' '^\[[0-9]\] tutti: rank ' killed.err
    expect_digest 'a rank was killed' killed.out
}

launch_is_interrupted() {
    local pid
    salloc -Q -n 4 "$tutti" launch -- "${training[@]}" --out stopped >stopped.out 2>stopped.err &
    pid=$!
    wait_for_checkpoint stopped 100 "$pid" || { complain 'the run ended before SIGINT' stopped.err; return; }
    kill -INT "$(pgrep -f "^$tutti launch")"
    wait "$pid"
    expect_status 'SIGINT' 130 $? stopped.err
    salloc -Q -n 4 "$tutti" launch -n 2 -- train stopped --resume >resumed.out 2>resumed.err
    expect_status 'resuming after SIGINT' 0 $? resumed.err
    expect_digest 'resuming after SIGINT' resumed.out
}

# scancel signals all processes of the job; the ranks save the run before Slurm kills them.
a_job_is_cancelled() {
    local job saved
    printf '#!/bin/sh\nexec "$@"\n' >job.sh
    job=$(sbatch --parsable -n 4 --output=job.log job.sh "$tutti" launch -- "${training[@]}" --out cancelled) || exit
    until [[ -e cancelled/checkpoints/step-100.safetensors || -z $(squeue --noheader --jobs="$job") ]]; do sleep 0.05; done
    scancel "$job"
    while [[ -n $(squeue --noheader --jobs="$job" 2>/dev/null) ]]; do sleep 0.2; done
    expect_line scancel '^resume  *tutti train cancelled --resume$' job.log
    saved=$(sed -n 's/^steps *\([0-9]*\) of.*/\1/p' job.log)
    [[ -e cancelled/checkpoints/step-$saved.safetensors ]] || complain "scancel: step '$saved' is not saved" job.log
    "$tutti" train cancelled --resume >last.out 2>last.err
    expect_digest 'resuming after scancel' last.out
}

"$tutti" "${training[@]}" --out undisturbed >undisturbed.out 2>undisturbed.err
digest=$(digest_of undisturbed.out)
a_process_is_killed
launch_is_interrupted
a_job_is_cancelled
exit $failed
