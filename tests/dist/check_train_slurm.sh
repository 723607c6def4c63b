#!/usr/bin/env bash
# Trains with the batch script of the examples under a real Slurm, on two nodes with two tasks each: to the end, cancelled,
# stopped by a signal as before a time limit, and with a killed process. Run by hosts.sh and slurm.sh.
#   check_train_slurm.sh TUTTI SOURCE
set -uo pipefail

export TUTTI=$1 TUTTI_RUN
script=$2/examples/slurm/train.sbatch
cd "$TMPDIR" || exit
run=(mlp --data generated --steps 150 --batch 64 --checkpoint-every 20)
failed=0

complain() {
    echo "FAILED  $*"
    sed 's/^/    /' "$log"
    failed=1
}
digest_in() { sed -n 's/^digest *//p' "$1" | tail -n 1; }
state() { scontrol show job "$job" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p'; }

# submit NAME: starts a job. Sets `job`, its `log` and its run folder, TUTTI_RUN.
submit() {
    TUTTI_RUN=$TMPDIR/$1
    job=$(sbatch --parsable --nodes=2 --ntasks-per-node=2 --job-name="$1" "$script" "${run[@]}") || exit
    log=$1-$job.log
}
wait_for_steps() { until grep -qs '^step' "$log"; do sleep 0.1; done; }
# A job that is killed earlier has nothing to resume.
wait_for_checkpoint() { until compgen -G "$TUTTI_RUN/checkpoints/step-*.safetensors" >/dev/null; do sleep 0.1; done; }
# expect_state STATE: waits until the job ends.
expect_state() {
    while [[ $(state) =~ ^(PENDING|CONFIGURING|RUNNING|COMPLETING|REQUEUED)?$ || -n $(squeue --noheader --jobs="$job" 2>/dev/null) ]]; do sleep 0.5; done
    [[ $(state) == "$1" ]] || complain "job $(basename "$TUTTI_RUN") is $(state), expected $1"
}
# expect_digest WHAT LOG
expect_digest() { [[ $(digest_in "$2") == "$digest" ]] || complain "$1: digest '$(digest_in "$2")', expected $digest"; }
expect_requeued() {
    expect_state COMPLETED
    [[ $(scontrol show job "$job") == *Restarts=1* ]] || complain "the job was not requeued once"
    grep -q 'resuming after step' "$log" || complain "the requeued job did not resume"
    expect_digest "requeued job" "$log"
}
rank_2() {
    local pid
    for pid in $(pgrep -f "train mlp .* $TUTTI_RUN "); do
        tr '\0' '\n' <"/proc/$pid/environ" | grep -q '^PMIX_RANK=2$' && [[ $(</proc/"$pid"/comm) == tutti ]] && echo "$pid"
    done
}

"$TUTTI" train "${run[@]}" --devices cpu:0/4 --quiet --out alone >alone.log 2>&1 || { cat alone.log; exit 1; }
digest=$(digest_in alone.log)

submit whole
expect_state COMPLETED
expect_digest "job" "$log"

submit cancelled
wait_for_steps
scancel "$job"
expect_state CANCELLED
"$TUTTI" train "$TUTTI_RUN" --resume --devices cpu:0/4 >resumed.log 2>&1 || complain "the cancelled run does not resume: $(<resumed.log)"
grep -q '^run folder .* resuming after step [0-9]* of' resumed.log || complain "the cancelled run has saved no checkpoint"
expect_digest "resumed after scancel" resumed.log

submit stopped
wait_for_steps
scancel --signal=TERM "$job"
expect_requeued
grep -q 'status 130 after 0 restarts: requeueing' "$log" || complain "expected the status of a saved run"

submit killed
wait_for_checkpoint
kill -KILL "$(rank_2)"
expect_requeued
for rank in 0 1 3; do
    grep -q "^tutti: rank $rank on host h.: rank 2 (host h2, device cpu:0.0) ended unexpectedly" "$log" || complain "rank $rank does not name rank 2"
done

log=$TMPDIR/no_pmix.log
srun --mpi=none -n 4 "$TUTTI" train "${run[@]}" --out no_pmix >"$log" 2>&1
status=$?
((status == 2)) || complain "srun without PMIx: status $status, expected 2"
[[ $(grep '^tutti: ' "$log") == "tutti: rank 0 on host 'h1': srun has started 4 processes without PMIx, "* &&
    $(grep -c '^tutti: ' "$log") == 1 ]] || complain "srun without PMIx: expected one line"
exit $failed
