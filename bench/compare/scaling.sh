#!/usr/bin/env bash
# What devices that share a batch gain: `tutti bench` with each strategy on the parts of a device, against one.
#   bench/compare/scaling.sh [TUTTI]
#
#   bench/compare/scaling.sh                                        two one-core CPU devices against one core, 128 a replica
#   DEVICE=gpu:0 PARTS=4 BATCH=1024 bench/compare/scaling.sh        a card in four against the card, at the same global batch
#
# A processor's parts have a core each, so they are compared with one core at one replica's batch: the ratio is how many
# times as many samples a second they train. A card's parts share the card, so they are compared with the whole at the
# batch of all: the ratio says what dividing costs. All sides take one block a round, in turns; ratios are those of the
# medians over the rounds, and of the least times, which are the ones to believe on a machine that others use.
#
# Of `central` also the bound that its own parts set, by the trace: the longest computing and copying of a replica, and then
# the fetching of gradients, adding and updating of the device that holds the variables; and the same with the feeding of
# the replicas. Each block is held against its own bound: a processor that others slow down slows both. A traced step makes
# its copies one at a time and times each kernel, so the parts are longer there than in the step they are held against, and
# may come to more than 100% of it.
# Changed by the environment: MODEL tutorial-cnn, ROUNDS 5, DEVICE cpu:0, PARTS 2, BATCH 128 (a replica), STEPS 5 (in a
# block), PRECISION f32, STRATEGIES 'mirrored central'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
model=${MODEL:-tutorial-cnn} rounds=${ROUNDS:-5} device=${DEVICE:-cpu:0} parts=${PARTS:-2} batch=${BATCH:-128}
steps=${STEPS:-5} precision=${PRECISION:-f32}
read -ra strategies <<<"${STRATEGIES:-mirrored central}"
[[ -x $tutti ]] || { echo "there is no program '$tutti': build it, or give its path" >&2; exit 2; }

width=() one_batch=$((batch * parts)) one_name="$device"
[[ $device == cpu:* ]] && width=(--threads 1) one_batch=$batch one_name='one core'

block() { # options; prints one JSON object
    "$tutti" bench "$model" --steps "$steps" --trace-steps "$steps" --repeat 1 --precision "$precision" "${width[@]}" \
        --json "$@"
}
number() { sed "s/.*\"$1\":\([0-9.e+-]*\).*/\1/"; }
bounds() { # of the blocks with `central`, one a line: what their devices spend a step on, against the step
    python3 -c '
import json, statistics, sys
blocks = [json.loads(line) for line in sys.stdin]
def of(share, *parts):
    return sum(share[part + "_ms"] for part in parts)
def bound(block, *parts):
    centre = sum(of(s, "copying", "computing") for s in block["shares"] if not s["replica"])
    return centre + max(of(s, *parts) for s in block["shares"] if s["replica"])
def row(name, *parts):
    ratios = [100 * bound(b, *parts) / b["ms_per_step"] for b in blocks]
    middle = statistics.median(bound(b, *parts) for b in blocks)
    print("central: %s take %.2f ms of the trace, %.1f%% of a step (blocks: %s)"
          % (name, middle, statistics.median(ratios), " ".join("%.1f" % r for r in ratios)))
row("computing, copying and updating", "computing", "copying")
row("with feeding they", "feeding", "computing", "copying")'
}

declare -A times=() samples=()
central=
for ((round = 0; round < rounds; round++)); do
    times[one]+=" $(block --devices "$device" --batch "$one_batch" | number ms_per_step)"
    for strategy in "${strategies[@]}"; do
        line=$(block --devices "$device/$parts" --batch "$((batch * parts))" --strategy "$strategy")
        times[$strategy]+=" $(number ms_per_step <<<"$line")"
        [[ $strategy != central ]] || central+=$line$'\n'
    done
done
samples[one]=$one_batch
for strategy in "${strategies[@]}"; do samples[$strategy]=$((batch * parts)); done

pick() { # side place: 1 the least, 'middle' the median
    local place=$2
    [[ $place == middle ]] && place=$((rounds / 2 + 1))
    tr ' ' '\n' <<<"${times[$1]# }" | sort -g | sed -n "${place}p"
}
ratio() { # side place: samples a second against one's
    awk -v b="${samples[$1]}" -v t="$(pick "$1" "$2")" -v b1="${samples[one]}" -v t1="$(pick one "$2")" \
        'BEGIN {printf "%.3f", (b / t) / (b1 / t1)}'
}

printf '%-10s  %-10s  %6s  %10s  %10s  %12s  %14s\n' side devices batch 'median ms' 'least ms' 'by medians' 'by least times'
printf '%-10s  %-10s  %6d  %10.2f  %10.2f\n' one "$one_name" "${samples[one]}" "$(pick one middle)" "$(pick one 1)"
for strategy in "${strategies[@]}"; do
    printf '%-10s  %-10s  %6d  %10.2f  %10.2f  %12s  %14s\n' "$strategy" "$device/$parts" "${samples[$strategy]}" \
        "$(pick "$strategy" middle)" "$(pick "$strategy" 1)" "$(ratio "$strategy" middle)" "$(ratio "$strategy" 1)"
done
[[ -z $central ]] || bounds <<<"${central%$'\n'}"
