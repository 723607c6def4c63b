#!/usr/bin/env bash
# Tests that `tutti train` computes the same on one process and on several. Run by hosts.sh.
#   check_digests.sh TUTTI [long]
#
# Without `long`: a small network and 12 steps. With it: tutorial-cnn and resnet20, 200 steps, f32 and bf16, on 1x8, 2x4,
# 4x2 and 8x1 processes x devices. The last batch of an epoch has three images, fewer than shards.
set -uo pipefail

tutti=$1 mode=${2:-quick} failed=0 here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/cli/arrays.sh
. "$here/../cli/arrays.sh"
export XDG_CACHE_HOME=$TMPDIR/cache
cd "$TMPDIR" || exit 1

# make_set SIDE: 320 images, of which 259 are for training.
make_set() {
    local values=$((320 * $1 * $1 * 3))
    write_array "images$1.npy" "320, $1, $1, 3" "int(((i * 7919) % 65521) / 256 + int(i / ($values / 320)) * 7) % 251" $values
    write_array "labels$1.npy" "320," "(i * 7) % 10" 320
}

# train PROCESSES FOLDER OPTION...: prints the result as JSON.
train() {
    local count=$1 folder=$2
    shift 2
    if ((count == 1)); then
        "$tutti" train "$@" --out "$folder" --json -q 2>"$folder.log"
    else
        mpirun -n "$count" "$tutti" train "$@" --out "$folder" --json -q 2>"$folder.log"
    fi || { echo "FAILED  $count processes: train $*"; cat "$folder.log"; return 1; } >&2
}

# field NAME: reads JSON from standard input.
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }

# expect WHAT EXPECTED GOT
expect() {
    if [[ -n $2 && $2 == "$3" ]]; then
        echo "ok      $1: ${2:0:16}"
    else
        echo "FAILED  $1: expected '$2', got '$3'"
        failed=1
    fi
}

# remove_after FOLDER STEP: the run then resumes from the checkpoint of that step.
remove_after() {
    local file step
    for file in "$1"/checkpoints/step-*.safetensors; do
        step=${file##*step-} step=${step%.safetensors}
        ((step <= $2)) || rm "$file"
    done
}

# ---- One result on any number of processes ----

# same_on_all "PROCESSES DEVICES STRATEGY"... -- OPTION...: compares with one process and one device. The evaluations
# must be the same, too.
same_on_all() {
    local layouts=() layout result wanted digest name
    while [[ $1 != -- ]]; do layouts+=("$1"); shift; done
    shift
    rm -rf alone
    wanted=$(train 1 alone "$@" --devices cpu:0) || { failed=1; return; }
    digest=$(field digest <<<"$wanted")
    for layout in "${layouts[@]}"; do
        read -r count devices strategy <<<"$layout"
        rm -rf several
        result=$(train "$count" several "$@" --devices "cpu:0/$devices" --strategy "$strategy") || { failed=1; continue; }
        expect "$* on $count x $devices, $strategy" "$digest" "$(field digest <<<"$result")"
        for name in loss validation_loss validation_accuracy test_loss test_accuracy test_top5 test_largest_class; do
            [[ $(field $name <<<"$result") == "$(field $name <<<"$wanted")" ]] && continue
            expect "$* on $count x $devices, $strategy: $name" "$(field $name <<<"$wanted")" "$(field $name <<<"$result")"
        done
    done
}

# ---- A run moves between 4, 1 and 2 processes ----

# moves_freely STEPS OPTION...: resumes after a third of the steps on one process, after two thirds on two.
moves_freely() {
    local steps=$1 result digest
    shift
    rm -rf alone moving
    result=$(train 1 alone "$@" --steps "$steps" --devices cpu:0) || { failed=1; return; }
    digest=$(field digest <<<"$result")
    result=$(train 4 moving "$@" --steps "$steps" --checkpoint-every $((steps / 3)) --keep 9 --strategy central) ||
        { failed=1; return; }
    expect "$* on 4 processes" "$digest" "$(field digest <<<"$result")"
    remove_after moving $((steps / 3))
    result=$("$tutti" train moving --resume --devices cpu:0 --strategy mirrored --json -q 2>moving.log) || { failed=1; cat moving.log; }
    expect "  resumed on 1 process" "$digest" "$(field digest <<<"$result")"
    remove_after moving $((steps / 3 * 2))
    result=$(mpirun -n 2 "$tutti" train moving --resume --devices cpu:0/2 --strategy central --json -q 2>moving.log) ||
        { failed=1; cat moving.log; }
    expect "  resumed on 2 processes" "$digest" "$(field digest <<<"$result")"
}

# ---- Every sample is evaluated once ----

# Three processes evaluate 32 test images in batches that do not divide; one process evaluates the same weights.
evaluates_once() {
    local result again name
    rm -rf several
    result=$(train 3 several "$@") || { failed=1; return; }
    again=$("$tutti" eval several --devices cpu:0 --json) || failed=1
    for name in accuracy top5 largest_class; do
        expect "evaluation on 3 processes, $name" "$(field $name <<<"${again%%classes*}")" "$(field test_$name <<<"$result")"
    done
}

# ---- bf16 gradients halve what is sent ----

# bytes_of VALUE OPTION...: the bytes that bench counts in collectives.
bytes_of() {
    mpirun -n 2 "$tutti" bench mlp --batch 16 --steps 3 --repeat 1 --bf16-gradients "$@" --json 2>/dev/null | field communication_bytes
}

bf16_halves_bytes() {
    local wide narrow
    wide=$(bytes_of no --strategy mirrored)
    narrow=$(bytes_of yes --strategy mirrored)
    # Gradients of fewer than 1,024 elements, and the loss, stay in f32.
    if ((narrow > 0 && narrow * 100 > wide * 49 && narrow * 100 < wide * 51)); then
        echo "ok      bf16 gradients: $narrow instead of $wide bytes"
    else
        echo "FAILED  bf16 gradients: $narrow bytes, f32: $wide"
        failed=1
    fi
}

# ---- What the processes exchange, and who has the variables ----

# expect_in WHAT TEXT PATTERN
expect_in() {
    if grep -Eq "$3" <<<"$2"; then
        echo "ok      $1"
    else
        echo "FAILED  $1: no match for $3 in:"
        echo "$2"
        failed=1
    fi
}

explains_all_ranks() {
    local text
    text=$(mpirun -n 2 "$tutti" explain mlp --strategy central)
    expect_in 'the parameters are broadcast' "$text" '^hidden1/weights/broadcast +collective_broadcast +6 +2 +2.6 MiB  of 2 processes$'
    expect_in 'the gradients are reduced' "$text" '^loss/mean/sum +collective_reduce +7 +2 +2.6 MiB  of 2 processes$'
    expect_in 'rank 0 has the variables' "$text" '^ +0  cpu:0.0 .* 5.2 MiB +0 B +[0-9.]+ MiB$'
    expect_in 'rank 1 has none' "$text" '^ +1  cpu:0.1 +[0-9.]+ MiB +0 B +0 B +0 B +[0-9.]+ MiB$'
}

if [[ $mode == long ]]; then
    make_set 32
    set32=(--data images32.npy,labels32.npy --batch 64 --steps 200 --evaluate-every 200 --invariant 8)
    layouts=()
    for strategy in mirrored central; do
        for layout in '1 8' '2 4' '4 2' '8 1'; do layouts+=("$layout $strategy"); done
    done
    for model in tutorial-cnn resnet20; do
        for precision in f32 bf16; do
            same_on_all "${layouts[@]}" -- "$model" "${set32[@]}" --precision $precision
        done
    done
    for model in tutorial-cnn resnet20; do
        moves_freely 60 "$model" --data images32.npy,labels32.npy --batch 64 --evaluate-every 60 --invariant 8
    done
fi
make_set 8
set8=(--data images8.npy,labels8.npy --steps 12)
same_on_all '4 1 mirrored' '2 2 central' -- mlp "${set8[@]}" --batch 64 --invariant 8
# Also with a loss scale, clipping, averaged weights and micro-batches.
same_on_all '4 1 central' -- mlp "${set8[@]}" --batch 64 --invariant 8 --precision f16 --clip 0.5 --average 0.9
same_on_all '2 2 mirrored' -- mlp "${set8[@]}" --batch 64 --invariant 8 --accumulate 2 --clip 0.5
moves_freely 12 mlp --data images8.npy,labels8.npy --batch 64 --invariant 8
evaluates_once mlp "${set8[@]}" --batch 31
bf16_halves_bytes
explains_all_ranks
exit $failed
