#!/usr/bin/env bash
# Collectives and training on several processes that share one GPU, through NCCL. Needs a build, mpirun and a GPU with
# NCCL, or the emulated one. Prints a table, and exits with 1 if anything differs from one process.
#   nccl_on_gpu.sh BUILD_FOLDER [emulated]
#   SECONDS_AT_MOST=450   what has not begun by then is left out, and said
#   MODELS='tutorial-cnn mlp', STEPS=12, BATCH=256, BASE=WIDTH   what to train, and how
#   MEBIBYTES=64   the largest input or result of a collective
#
# Processes that share a GPU exchange bytes through sockets, so times say nothing about processes with a GPU each.
set -uo pipefail

build=$(realpath "$1")
if [[ ${2-} == emulated ]]; then
    export TUTTI_CUDA_LIBRARIES=$build/tests/cuda/libraries TUTTI_KERNELS=''
fi
export TUTTI_NCCL=share OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
limit=${SECONDS_AT_MOST:-450} models=${MODELS:-tutorial-cnn mlp} steps=${STEPS:-12} batch=${BATCH:-256} failed=0 left_out=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TUTTI_DATA=$work/data
SECONDS=0

ranks() { # number command...
    local n=$1
    shift
    timeout --signal=KILL 400 mpirun -n "$n" --oversubscribe "$@"
}
has_time() {
    ((SECONDS < limit)) && return
    ((left_out++))
    return 1
}

# ---- Collectives ----

for n in 2 4; do
    has_time || continue
    echo "== collectives of $n processes =="
    ranks $n "$build/tests/process_collectives" "${MEBIBYTES:-64}" ${2:+"$2"} || { echo "FAILED  collectives of $n processes: status $?"; failed=1; }
done

# ---- A rank dies ----

# Its peer waits for it in a kernel that never ends: the peer must name it and end.
if has_time; then
    rm -rf "$work/run" "$work/log"
    began=$SECONDS
    # shellcheck disable=SC2016 # expanded by each rank
    ranks 2 bash -c 'echo $$ >"$0/pid.$OMPI_COMM_WORLD_RANK"; exec "$@"' "$work" \
        "$build/tutti" train mlp --data generated --devices gpu:0 --steps 2000 --batch "$batch" --out "$work/run" >"$work/log" 2>&1 &
    mpirun=$!
    for ((i = 0; i < 600; i++)); do
        grep -qs '^step [1-9]' "$work/log" && break
        sleep 0.1
    done
    kill -9 "$(cat "$work/pid.1")"
    killed=$SECONDS
    wait $mpirun
    status=$?
    if grep -q 'rank 1 .* ended unexpectedly' "$work/log" && ((status != 0 && status != 137 || SECONDS - killed < 20)); then
        echo "rank 1 was killed: the other one named it and ended after $((SECONDS - killed)) s (status $status)"
    else
        echo "FAILED  rank 1 was killed after $((killed - began)) s: status $status after $((SECONDS - killed)) s:"
        tail -n 5 "$work/log"
        failed=1
    fi
fi

# ---- Training ----

# digest PROCESSES DEVICES OPTION...: trains with a strategy (mirrored), and sets `digest` and `seconds`. Values must not go through
# the host.
digest() {
    local n=$1 devices=$2 began=$SECONDS launcher=()
    shift 2
    ((n > 1)) && launcher=(ranks "$n")
    rm -rf "$work/run"
    "${launcher[@]}" "$build/tutti" train --data generated --devices "$devices" --strategy "${strategy:-mirrored}" --steps "$steps" \
        --evaluate-every 1000 --batch "$batch" ${BASE:+--base "$BASE"} --quiet --out "$work/run" "$@" >"$work/log" 2>&1
    digest=$(sed -n 's/^digest *//p' "$work/log" | cut -c1-16) seconds=$((SECONDS - began))
    if [[ -z $digest ]]; then
        echo "FAILED  $n processes on $devices, $*:"
        tail -n 5 "$work/log"
        failed=1
        digest=none
    elif grep -q 'through the host' "$work/log"; then
        echo "FAILED  $n processes on $devices do not use NCCL: $(grep 'through the host' "$work/log")"
        failed=1
    fi
}

# compare TITLE PROCESSES,DEVICES... -- OPTION...: trains with all of them; the first one is the reference.
compare() {
    local title=$1 reference='' one verdict
    shift
    local places=()
    while [[ $1 != -- ]]; do places+=("$1"); shift; done
    shift
    has_time || { echo "left out: $title"; return; }
    for one in "${places[@]}"; do
        digest "${one%%,*}" "${one#*,}" "$@"
        reference=${reference:-$digest}
        verdict=same
        [[ $digest == "$reference" && $digest != none ]] || { verdict=DIFFERENT; failed=1; }
        printf '%-40s %s x %-10s %s  %3d s  %s\n' "$title" "${one%%,*}" "${one#*,}" "$digest" "$seconds" "$verdict"
    done
}

printf '%s\n' "== digests of the trained variables, after $steps steps =="
for model in $models; do
    compare "$model --invariant 4" 1,gpu:0/4 2,gpu:0/2 4,gpu:0 -- "$model" --invariant 4
    compare "$model, 4 replicas" 1,gpu:0/4 2,gpu:0/2 4,gpu:0 -- "$model"
    compare "$model, 2 replicas" 1,gpu:0/2 2,gpu:0 -- "$model"
    compare "$model, 2 replicas, bf16 gradients" 1,gpu:0/2 2,gpu:0 -- "$model" --bf16-gradients yes
    strategy=central compare "$model, central, 2 replicas" 1,gpu:0/2 2,gpu:0 -- "$model" --central gpu:0.0/2
    strategy=central compare "$model, central, 4 replicas" 1,gpu:0/4 2,gpu:0/2 4,gpu:0 -- "$model" --central gpu:0.0/4
done

((left_out)) && echo "$left_out comparisons were left out after $limit s"
((failed)) && echo FAILED || echo "all equal, in $SECONDS s"
exit $failed
