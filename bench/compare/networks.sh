#!/usr/bin/env bash
# Four independent small networks, trained in one graph: one after another on one device, beside each other on its
# logical parts, and (GPU) on several streams of one device, or of each part.
#   bench/compare/networks.sh [BENCH_DEVICES]
#
# The sides take turns; ratios are of the medians over the rounds.
# Changed by the environment: ROUNDS 5, DEVICE gpu:0, PARTS 4, NETWORKS 4, UNITS 64, BATCH 32
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bench=${1:-build/release/bench/devices/bench_devices}
rounds=${ROUNDS:-5} device=${DEVICE:-gpu:0} parts=${PARTS:-4} networks=${NETWORKS:-4} units=${UNITS:-64} batch=${BATCH:-32}
[[ -x $bench ]] || { echo "there is no program '$bench': build it, or give its path" >&2; exit 2; }

ms() { "$bench" networks "$1" "$networks" "$2" "$units" "$batch" | sed 's/.*"ms_per_step":\([0-9.]*\).*/\1/'; }
median() { printf '%s\n' "$@" | sort -g | sed -n "$((rounds / 2 + 1))p"; }
times() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.2f", a / b}'; }

one=() split=() streams=() both=()
for ((round = 0; round < rounds; round++)); do
    one+=("$(ms "$device" 1)")
    split+=("$(ms "$device/$parts" 1)")
    streams+=("$(ms "$device" 0)")
    both+=("$(ms "$device/$parts" 0)")
done
a=$(median "${one[@]}") b=$(median "${split[@]}") c=$(median "${streams[@]}") d=$(median "${both[@]}")
printf '%-28s %10s ms a step\n' "$device, one after another" "$a" "$device/$parts" "$b" "$device, streams as pay" "$c" \
    "$device/$parts, streams as pay" "$d"
echo "$device/$parts is $(times "$a" "$b") times as fast, streams $(times "$a" "$c") times, both $(times "$a" "$d") times"
