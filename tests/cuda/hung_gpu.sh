#!/usr/bin/env bash
# A GPU whose kernels never end, in the middle of training. Checks that the run ends at its timeout with one line that
# names the device and the progress, that saved checkpoints are usable, and that a resumed run reaches the same
# result.
#   hung_gpu.sh TUTTI
set -uo pipefail

tutti=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TUTTI_DATA=$work/data
failed=0

complain() {
    echo "FAILED  $*"
    failed=1
}
digest_in() { grep -o '^digest .*' "$1"; }

# hang DEVICES LAUNCH PATTERN: trains on devices whose LAUNCH-th graph launch hangs and expects PATTERN in the
# message.
hang() {
    local devices=$1 launch=$2 pattern=$3 run=$work/hung whole=$work/whole
    train() { # folder option...
        timeout --signal=KILL 100 "$tutti" train mlp --data generated --devices "$devices" --strategy mirrored --base 8 --batch 16 \
            --steps 40 --checkpoint-every 5 --evaluate-every 1000 --out "$@"
    }
    rm -rf "$run" "$whole"
    train "$whole" >"$work/whole.log" 2>&1 || { cat "$work/whole.log"; exit 1; }
    FAKE_CUDA_HANG=$launch train "$run" --timeout 5 >"$work/log" 2>"$work/errors"
    local status=$?
    ((status == 2)) || complain "$devices: status $status: $(tail -n 1 "$work/errors")"
    [[ $(grep -c 'training stopped' "$work/errors") == 1 ]] || complain "$devices: not reported exactly once: $(cat "$work/errors")"
    grep -Eq "^tutti: training stopped after step [0-9]+: .*$pattern" "$work/errors" ||
        complain "$devices: expected '$pattern': $(tail -n 1 "$work/errors")"
    compgen -G "$run/checkpoints/step-*.safetensors" >/dev/null || complain "$devices: no checkpoint"
    timeout --signal=KILL 100 "$tutti" train "$run" --resume >"$work/log" 2>&1 || complain "$devices: no resume: $(tail -n 1 "$work/log")"
    [[ $(digest_in "$work/log") == $(digest_in "$work/whole.log") ]] || complain "$devices: the resumed run has another result"
}

# Multi-step calls of one GPU, of its logical devices together, and single steps of a GPU and a CPU.
hang gpu:0 17 'gpu:0: (no step|its step) has '
hang gpu:0/2 17 'gpu:0.0 to gpu:0.1: (no step( of gpu:0.[01])?|its step) has '
hang cpu:0,gpu:0 40 "device 'gpu:0' has not (finished computing|returned) after 5 s: (its kernels|it is executing) "

# The measurement of speeds before the first step has the same timeout.
FAKE_CUDA_HANG=1 timeout --signal=KILL 100 "$tutti" train mlp --data generated --devices cpu:0,gpu:0 --strategy mirrored --base 8 --batch 16 --steps 4 \
    --timeout 2 --out "$work/measured" >"$work/log" 2>"$work/errors"
status=$?
((status == 2)) || complain "measuring speeds: status $status: $(tail -n 1 "$work/errors")"
grep -q "^tutti: cannot measure the speed of gpu:0: .*after 2 s" "$work/errors" || complain "measuring speeds: $(cat "$work/errors")"
exit $failed
