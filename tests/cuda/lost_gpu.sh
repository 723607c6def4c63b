#!/usr/bin/env bash
# A GPU that fails during training, at one call after another. Checks that training reports the cause, ends with
# status 2, and that the resumed run reaches the same result as an uninterrupted one.
#   lost_gpu.sh TUTTI STEP      every STEP-th call of NVIDIA's functions fails, each in a separate run
set -uo pipefail

tutti=$1 step=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TUTTI_DATA=$work/data
failed=0

train() { # folder
    timeout 100 "$tutti" train mlp --data generated --devices gpu:0 --base 8 --batch 64 --steps 6 --checkpoint-every 2 \
        --evaluate-every 1000 --out "$1"
}
complain() {
    echo "FAILED  $*"
    failed=1
}
digest_in() { grep -o '^digest .*' "$1"; }

train "$work/whole" >"$work/whole.log" 2>&1 || { cat "$work/whole.log"; exit 1; }
[[ -n $(digest_in "$work/whole.log") ]] || { echo 'FAILED  no digest'; exit 1; }

# Calls that only query something may fail without effect, about thirty in a row: the loop ends after a hundred.
runs=0 resumed=0 unharmed=0
for ((call = 1; unharmed < 4 || unharmed * step < 100; call += step)); do
    run=$work/run$call
    FAKE_CUDA_FAIL=$call train "$run" >"$work/log" 2>&1
    status=$?
    ((runs++))
    if ((status == 0)); then
        [[ $(digest_in "$work/log") == $(digest_in "$work/whole.log") ]] || complain "call $call: another result"
        ((unharmed++))
        rm -rf "$run"
        continue
    fi
    unharmed=0
    ((status == 2)) || complain "call $call: status $status: $(tail -n 1 "$work/log")"
    grep -q '^tutti: .*cu[A-Za-z]*\|^tutti: .*nvrtc' "$work/log" || complain "call $call: cause not named: $(tail -n 1 "$work/log")"
    if [[ -e $run ]]; then # a run that had started can be resumed
        ((resumed++))
        timeout 100 "$tutti" train "$run" --resume >"$work/log" 2>&1 || complain "call $call: no resume: $(tail -n 1 "$work/log")"
        [[ $(digest_in "$work/log") == $(digest_in "$work/whole.log") ]] || complain "call $call: the resumed run has another result"
    fi
    rm -rf "$run"
done
((runs > 3 && resumed > 0)) || complain "$runs runs, $resumed of them resumed: too few"
echo "$runs runs, $resumed resumed"
exit $failed
