#!/usr/bin/env bash
# Measures four independent small networks, trained in one graph: one after another on one device, in parallel on its
# logical devices, and (GPU) on several streams of one device or of each logical device.
#   bench/compare/networks.sh [BENCH_DEVICES]
#
# The variants alternate; ratios are those of the medians over the rounds.
#
# Environment variables and their defaults:
#   ROUNDS    5        number of rounds (odd)
#   DEVICE    gpu:0
#   PARTS     4        number of logical devices
#   NETWORKS  4        number of networks
#   UNITS     64       units per layer
#   BATCH     32       batch size
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bench=${1:-build/release/bench/devices/bench_devices}
rounds=${ROUNDS:-5} device=${DEVICE:-gpu:0} parts=${PARTS:-4} networks=${NETWORKS:-4} units=${UNITS:-64} batch=${BATCH:-32}
[[ -x $bench ]] || { echo "program '$bench' does not exist: build it, or give its path" >&2; exit 2; }

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
printf '%-28s %10s ms/step\n' "$device, one after another" "$a" "$device/$parts" "$b" "$device, several streams" "$c" \
    "$device/$parts, several streams" "$d"
echo "$device/$parts is $(times "$a" "$b") times as fast, streams $(times "$a" "$c") times, both $(times "$a" "$d") times"
