#!/usr/bin/env bash
# A card whose kernels never end, in the middle of training: the run ends at its deadline with one line that names the device and
# how far it was, what it had saved is as good as ever, and a later run goes on from there to the same end.
#   hung_card.sh TUTTI
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

# hang DEVICES LAUNCH PATTERN: training on the devices, whose LAUNCH-th graph hangs; the message has PATTERN in it.
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
    [[ $(grep -c 'training stopped' "$work/errors") == 1 ]] || complain "$devices: not told once: $(cat "$work/errors")"
    grep -Eq "^tutti: training stopped after step [0-9]+: .*$pattern" "$work/errors" ||
        complain "$devices: expected '$pattern': $(tail -n 1 "$work/errors")"
    compgen -G "$run/checkpoints/step-*.safetensors" >/dev/null || complain "$devices: no checkpoint"
    timeout --signal=KILL 100 "$tutti" train "$run" --resume >"$work/log" 2>&1 || complain "$devices: no resume: $(tail -n 1 "$work/log")"
    [[ $(digest_in "$work/log") == $(digest_in "$work/whole.log") ]] || complain "$devices: resumed to another end"
}

# Steps that a card takes at once, that its parts take together, and that are runs of a card and a processor.
hang gpu:0 17 'gpu:0: (no step|its step) has '
hang gpu:0/2 17 'gpu:0.0 to gpu:0.1 together: (no step( of gpu:0.[01])?|its step) has '
hang cpu:0,gpu:0 40 "device 'gpu:0' has not (finished computing|returned) after 5 s: (its kernels|it is executing) "
exit $failed
