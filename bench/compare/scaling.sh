#!/usr/bin/env bash
# Measures the scaling of data parallelism: `tutti bench` with each strategy on logical devices against one device.
#   bench/compare/scaling.sh [TUTTI]
#
#   bench/compare/scaling.sh                                    two one-core CPU devices against one core, batch 128
#                                                               per replica
#   DEVICE=gpu:0 PARTS=4 BATCH=1024 bench/compare/scaling.sh    four logical devices of a GPU against the GPU, with
#                                                               the same global batch
#
# Logical devices of a CPU have one core each. They are compared with one core and the batch of one replica: the ratio
# is the speedup in samples per second. Logical devices of a GPU share it. They are compared with the whole GPU and
# the global batch: the ratio shows the cost of dividing the GPU. Each round runs one block of steps per variant,
# alternating. Prints the ratios of the medians over the rounds and of the minimum times, which are more reliable on a
# machine with other load.
#
# For `central` the script also prints a lower bound of the step time, computed from the trace: the longest computing
# and copying time of a replica, plus the time in which the central device fetches and adds the gradients and updates
# the variables; and the same including the copies of inputs to the replicas. Each block is compared with its own
# bound, because other load slows down both. A traced step runs its copies one at a time and measures each kernel, so
# the traced times are longer than those of the measured step, and the bound may exceed 100% of it.
#
# Environment variables and their defaults:
#   MODEL       tutorial-cnn
#   ROUNDS      5                      number of rounds (odd)
#   DEVICE      cpu:0                  device to divide
#   PARTS       2                      number of logical devices
#   BATCH       128                    batch size per replica
#   STEPS       5                      steps per block
#   PRECISION   f32
#   STRATEGIES  'mirrored central'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tutti=${1:-build/release/tutti}
model=${MODEL:-tutorial-cnn} rounds=${ROUNDS:-5} device=${DEVICE:-cpu:0} parts=${PARTS:-2} batch=${BATCH:-128}
steps=${STEPS:-5} precision=${PRECISION:-f32}
read -ra strategies <<<"${STRATEGIES:-mirrored central}"
[[ -x $tutti ]] || { echo "program '$tutti' does not exist: build it, or give its path" >&2; exit 2; }

thread_options=() one_batch=$((batch * parts)) one_name="$device"
[[ $device == cpu:* ]] && thread_options=(--threads 1) one_batch=$batch one_name='one core'

block() { # OPTIONS...; prints one JSON object
    "$tutti" bench "$model" --steps "$steps" --trace-steps "$steps" --repeat 1 --precision "$precision" "${thread_options[@]}" \
        --json "$@"
}
number() { sed "s/.*\"$1\":\([0-9.e+-]*\).*/\1/"; }
# Reads the JSON objects of the blocks with `central`, one per line, and prints their lower bounds.
bounds() {
    python3 -c '
import json, statistics, sys
blocks = [json.loads(line) for line in sys.stdin]
def total(device, *phases):
    return sum(device[phase + "_ms"] for phase in phases)
def bound(block, *phases):
    central = sum(total(d, "copying", "computing") for d in block["shares"] if not d["replica"])
    return central + max(total(d, *phases) for d in block["shares"] if d["replica"])
def row(name, *phases):
    ratios = [100 * bound(b, *phases) / b["ms_per_step"] for b in blocks]
    median = statistics.median(bound(b, *phases) for b in blocks)
    print("central, lower bound by %s: %.2f ms, %.1f%% of a step (blocks: %s)"
          % (name, median, statistics.median(ratios), " ".join("%.1f" % r for r in ratios)))
row("computing, copying and updating", "computing", "copying")
row("the same and input copies", "feeding", "computing", "copying")'
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

pick() { # VARIANT 1|middle: the minimum or the median
    local index=$2
    [[ $index == middle ]] && index=$((rounds / 2 + 1))
    tr ' ' '\n' <<<"${times[$1]# }" | sort -g | sed -n "${index}p"
}
ratio() { # VARIANT 1|middle: samples per second relative to one device
    awk -v b="${samples[$1]}" -v t="$(pick "$1" "$2")" -v b1="${samples[one]}" -v t1="$(pick one "$2")" \
        'BEGIN {printf "%.3f", (b / t) / (b1 / t1)}'
}

printf '%-10s  %-10s  %6s  %10s  %10s  %12s  %14s\n' strategy devices batch 'median ms' 'minimum ms' 'by medians' 'by minimums'
printf '%-10s  %-10s  %6d  %10.2f  %10.2f\n' one "$one_name" "${samples[one]}" "$(pick one middle)" "$(pick one 1)"
for strategy in "${strategies[@]}"; do
    printf '%-10s  %-10s  %6d  %10.2f  %10.2f  %12s  %14s\n' "$strategy" "$device/$parts" "${samples[$strategy]}" \
        "$(pick "$strategy" middle)" "$(pick "$strategy" 1)" "$(ratio "$strategy" middle)" "$(ratio "$strategy" 1)"
done
[[ -z $central ]] || bounds <<<"${central%$'\n'}"
