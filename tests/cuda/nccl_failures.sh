#!/usr/bin/env bash
# What happens without NCCL, when it fails, and when a process is lost: the host path with one notice that says why, or
# the end of all processes with a message. Nothing hangs.
#   nccl_failures.sh TUTTI FOLDER_OF_FAKE_LIBRARIES [all]
# Without `all`, only the most likely cases.
set -uo pipefail

tutti=$(realpath "$1") libraries=$2 all=${3-} failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TUTTI_DATA=$work/data TUTTI_CUDA_LIBRARIES=$libraries TUTTI_KERNELS='' TUTTI_NCCL=share
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset FAKE_CUDA_LEAKS # processes that were told to end free nothing
options=(mlp --data generated --devices gpu:0 --base 4 --batch 64 --evaluate-every 100000 --collective-timeout 6)

complain() {
    echo "FAILED  $*"
    cat "$work/log"
    failed=1
}
# train STEPS VARIABLE=VALUE... : rank 1 alone gets these variables. The output goes to the log.
train() {
    local steps=$1
    shift
    rm -rf "$work/run"
    # shellcheck disable=SC2016 # expanded by each rank
    timeout --signal=KILL 100 mpirun -n 2 --oversubscribe bash -c '
        echo $$ >"$1/pid.$OMPI_COMM_WORLD_RANK"
        [[ $OMPI_COMM_WORLD_RANK == 1 ]] && export $2 NOTHING=
        exec "${@:3}"' ranks "$work" "$*" "$tutti" train "${options[@]}" --steps "$steps" --out "$work/run" >"$work/log" 2>&1
}
digest_of_log() { sed -n 's/^digest *//p' "$work/log"; }

train 3 || complain 'NCCL works'
grep -q 'notice.*through the host' "$work/log" && complain 'NCCL works: but values go through the host'
expected=$(digest_of_log)
[[ -n $expected ]] || complain 'no digest'

# through_host TITLE REASON VARIABLE=VALUE...
through_host() {
    local title=$1 reason=$2
    shift 2
    train 3 "$@" || complain "$title: status $?"
    [[ $(grep -c 'notice: between processes, values of GPUs go through the host: ' "$work/log") == 1 ]] ||
        complain "$title: expected one notice"
    grep -qE "values of GPUs go through the host: $reason" "$work/log" || complain "$title: the notice does not say '$reason'"
    [[ $(digest_of_log) == "$expected" ]] || complain "$title: another digest than $expected"
}
TUTTI_NCCL='' through_host 'two processes on one GPU' 'ranks 0 and 1 use the same GPU, which NCCL does not support'
mkdir "$work/libraries"
ln -s "$libraries"/lib*.so* "$work/libraries"
rm "$work"/libraries/libnccl*
TUTTI_CUDA_LIBRARIES=$work/libraries through_host 'no NCCL' 'libnccl\.so\.2 was not found in .*: install NCCL'

every_way_through_host() {
    TUTTI_NCCL=off through_host 'switched off' 'NCCL is disabled \(TUTTI_NCCL=off\)'
    TUTTI_NCCL=of through_host 'a wrong setting' "TUTTI_NCCL is 'of': expected off or share"
    through_host 'no NCCL on rank 1' 'rank 1: libnccl\.so\.2 was not found in ' TUTTI_CUDA_LIBRARIES="$work/libraries"
    through_host 'other versions' 'rank 0 has NCCL 2\.28\.9, rank 1 has NCCL 2\.30\.1: expected the same' FAKE_NCCL_VERSION=23001
    NCCL_HOSTID=same through_host 'refused by NCCL' 'NCCL: invalid usage: Duplicate GPU detected: rank 0 and rank 1$'
    for call in cuDeviceGetUuid ncclCommInitRankConfig ncclCommGetAsyncError ncclGroupStart ncclSend ncclGroupEnd; do
        through_host "$call fails on rank 1" "rank 1: $call(_v2)?: " FAKE_CUDA_FAIL=$call:1
    done
}
[[ $all ]] && every_way_through_host

# Strategy central with a GPU on rank 0, and on rank 1 a device of its list, a CPU.
other_kinds() {
    options=("${options[@]/gpu:0/cpu:0}" --strategy central --central gpu:0)
    rm -rf "$work/run"
    "$tutti" train "${options[@]/cpu:0/cpu:0/2}" --steps 3 --out "$work/run" >"$work/log" 2>&1 || complain "a GPU and a CPU, one process: status $?"
    expected=$(digest_of_log)
    through_host 'a GPU and a CPU' 'rank 1: its central device computes in host memory'
}
if [[ $all ]]; then (other_kinds; exit $failed) || failed=1; fi

# ends TITLE STATUS REASON VARIABLE=VALUE...: the run ends with the reason, at once.
ends() {
    local title=$1 expected_status=$2 reason=$3 status
    shift 3
    train 3000 "$@"
    status=$?
    [[ $status =~ ^($expected_status)$ ]] || complain "$title: status $status, expected $expected_status"
    grep -qE "$reason" "$work/log" || complain "$title: no line says '$reason'"
}
every_end() {
    # The first call connects the processes, the second one agrees on what is captured, the third one enqueues a step; a later one
    # is captured.
    for call in ncclGroupStart ncclSend ncclRecv ncclGroupEnd; do
        for n in 2 3 4 9; do
            ends "call $n of $call fails" 2 "rank 1 .*failed .*$call: internal error" FAKE_CUDA_FAIL=$call:$n
        done
    done
    FAKE_NCCL_BREAKS=2 ends 'the network breaks' '[24]' 'remote process exited or there was a network error: the emulated network is broken'
}
[[ $all ]] && every_end

# A step whose sums take longer than the timeout, each of them less.
slow_network() {
    local network=${BASH_SOURCE[0]%/*}/../../examples/mynet.c digest
    options=("$network" --data generated --devices gpu:0 --base 2 --batch 16 --evaluate-every 100000 --collective-timeout 3)
    train 3 || complain "mynet: status $?"
    digest=$(digest_of_log)
    FAKE_NCCL_MILLISECONDS=700 FAKE_NCCL_SLOW_GROUPS=20 train 3 || complain "slow network: status $?"
    [[ $digest && $(digest_of_log) == "$digest" ]] || complain "slow network: another digest than $digest"
}
if [[ $all ]]; then (slow_network; exit $failed) || failed=1; fi # in a shell of its own, for its options

# lost TITLE SIGNAL STATUS REASON: rank 1 gets the signal in the middle of training.
lost() {
    local title=$1 signal=$2 expected_status=$3 reason=$4 status pid
    rm -f "$work/log" # of the run before
    train 2000 &
    until grep -q '^step [1-9]' "$work/log" 2>/dev/null; do
        kill -0 $! 2>/dev/null || { complain "$title: the run did not begin"; return; }
        sleep 0.1
    done
    pid=$(cat "$work/pid.1")
    kill "-$signal" "$pid"
    wait $!
    status=$?
    kill -9 "$pid" 2>/dev/null
    [[ $status =~ ^($expected_status)$ ]] || complain "$title: status $status, expected $expected_status"
    grep -qE "$reason" "$work/log" || complain "$title: no line says '$reason'"
}
lost 'rank 1 was killed' KILL '4|137' 'rank 0 on host .*: rank 1 .*ended unexpectedly after step'
# With the strategy central, rank 0 waits for gradients, and rank 1 for variables.
central() {
    options+=(--strategy central --central gpu:0.0/2)
    lost 'rank 1 was killed, central' KILL '4|137' 'rank 0 on host .*: rank 1 .*ended unexpectedly after step'
    grep -q 'through the host' "$work/log" && complain 'central: values go through the host'
}
(central; exit $failed) || failed=1
[[ $all ]] && lost 'rank 1 was stopped' STOP '4|137' 'rank 0 on host .*: rank 1 .*has not answered for'
exit $failed
