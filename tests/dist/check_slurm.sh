#!/usr/bin/env bash
# Tests MPI programs under Slurm: started by srun and by mpirun, cancelled, and after a rank has died. Run by hosts.sh
# and slurm.sh, on two hosts with two CPUs each.
#   check_slurm.sh MPI_PROBE
set -uo pipefail

probe=$1 log=$TMPDIR/log
failed=0

complain() { echo "FAILED  $*"; sed 's/^/    /' "$log"; failed=1; }
# signals_of RANK: the numbers of the signals that a rank received, sorted: SIGCONT and SIGTERM may change places.
signals_of() { sed -n "s/^rank 000$1: signal //p" "$log" | sort -n | paste -sd' '; }
# expect_signals WHAT SIGNALS RANK...
expect_signals() {
    local what=$1 signals=$2 rank
    shift 2
    for rank; do
        [[ $(signals_of "$rank") == "$signals" ]] ||
            complain "$what: rank $rank received '$(signals_of "$rank")', expected '$signals'"
    done
}

# ---- start ----
nodes='rank 0 of 4 on h1: 0 of 2 on its node, first rank of the node 0
rank 1 of 4 on h1: 1 of 2 on its node, first rank of the node 0
rank 2 of 4 on h2: 0 of 2 on its node, first rank of the node 2
rank 3 of 4 on h2: 1 of 2 on its node, first rank of the node 2'
for start in 'srun --mpi=pmix -n 4' 'salloc -Q -n 4 mpirun'; do
    # shellcheck disable=SC2086 # words
    $start "$probe" nodes >"$log" 2>&1 || complain "$start: status $?"
    [[ $(grep '^rank' "$log" | sort) == "$nodes" ]] || complain "$start: expected two nodes of two ranks"
done

# ---- scancel ----
job=$(sbatch --parsable --ntasks=4 --output="$log" --wrap="srun --mpi=pmix '$probe' signals 60") || exit
until [[ $(grep -c ready "$log" 2>/dev/null) == 4 ]]; do sleep 0.1; done
scancel --signal=USR1 "$job"
until [[ $(grep -c '^rank.*signal 10' "$log") == 4 ]]; do sleep 0.1; done
scancel "$job"
while [[ -n $(squeue --noheader --jobs="$job" 2>/dev/null) ]]; do sleep 0.2; done
expect_signals scancel '10 15 18' 0 1 2 3
[[ $(scontrol show job "$job") == *JobState=CANCELLED* ]] || complain "scancel: $(scontrol show job "$job" | grep JobState)"

# ---- a rank dies ----
srun --mpi=pmix --kill-on-bad-exit=1 -n 4 "$probe" die 60 >"$log" 2>&1
status=$?
((status == 137)) || complain "srun --kill-on-bad-exit=1: status $status, expected 137"
expect_signals 'srun --kill-on-bad-exit=1' '15 18' 0 2 3
srun --mpi=pmix -n 4 "$probe" die 60 >"$log" 2>&1
status=$?
((status == 137)) || complain "srun: status $status, expected 137"
exit $failed
