#!/usr/bin/env bash
# Compares two builds of Tutti: whether their results have the same bits, and their speed.
#   bench/compare/builds.sh BEFORE AFTER [CASE...]
#
# BEFORE and AFTER are two programs `tutti`. A case is WORKLOAD:PRECISION[:OPTION[=VALUE]...], with options of `tutti bench`
# without their dashes, as in mlp:tf32:devices=gpu:0/4:strategy=central; a colon that no option name follows is part of the value.
# Digests are compared once for each case. For the times, each round measures both builds, one after the other, in alternating
# order; the result is the median of the ratios of the rounds (AFTER / BEFORE), with their quartiles.
#
# Environment variables and their defaults:
#   DEVICE   cpu:0    of cases without an option `devices`
#   ROUNDS   20       rounds of times; 0: only digests
#   STEPS    300      steps of a block
#   BLOCKS   7        blocks of a measurement, of which the median counts
#   OPTIONS  ""       options of all cases, for example --threads 2
# The exit status is 1 if a digest differs or a program fails.
set -euo pipefail

usage() { sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2; exit 2; }
(($# >= 2)) || usage
before=$1 after=$2
shift 2
for program in "$before" "$after"; do
    [[ -x $program ]] || { echo "program '$program' does not exist: build it, or give its path" >&2; exit 2; }
done
cases=("$@")
(($#)) || cases=(mlp:f32 tutorial-cnn:f32 resnet20:f32 mlp:bf16 tutorial-cnn:bf16 resnet20:bf16)
device=${DEVICE:-cpu:0} rounds=${ROUNDS:-20} steps=${STEPS:-300} blocks=${BLOCKS:-7}
read -ra options <<<"${OPTIONS:-}"
failed=0

# Sets `arguments` to those of `tutti bench` for a case.
parse_case() {
    local workload precision rest field
    IFS=: read -r workload precision rest <<<"$1"
    arguments=("$workload" --precision "$precision" "${options[@]}")
    [[ :$rest == *:devices=* ]] || arguments+=(--devices "$device")
    while [[ -n $rest ]]; do
        # Up to the next colon that an option name follows.
        if [[ $rest =~ ^([^:]+(:[0-9][^:]*)*)(:(.*))?$ ]]; then
            field=${BASH_REMATCH[1]} rest=${BASH_REMATCH[4]}
        else
            echo "case '$1': expected WORKLOAD:PRECISION[:OPTION[=VALUE]...]" >&2
            exit 2
        fi
        arguments+=("--${field%%=*}")
        [[ $field == *=* ]] && arguments+=("${field#*=}")
    done
}

value_of() { sed -n "s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" <<<"$1"; } # JSON NAME

# Prints the value with this name of the result of a program.
measure() { # NAME PROGRAM ARGUMENT...
    local result
    result=$("$2" bench "${@:3}" --json 2>&1) || { echo "failed: ${result##*$'\n'}"; return 0; }
    value_of "$result" "$1"
}

quartiles() { # of numbers on stdin
    sort -g | awk '{v[NR] = $1} END {printf "%.4f (%.4f to %.4f), n=%d\n", v[int((NR + 1) / 2)], v[int((NR + 3) / 4)], v[int((3 * NR + 1) / 4)], NR}'
}

equal=0
for name in "${cases[@]}"; do
    parse_case "$name"
    first=$(measure digest "$before" "${arguments[@]}" --steps 1 --repeat 1 --warmup 0)
    second=$(measure digest "$after" "${arguments[@]}" --steps 1 --repeat 1 --warmup 0)
    if [[ $first == "$second" && $first =~ ^[0-9a-f]{64}$ ]]; then
        equal=$((equal + 1))
    else
        printf 'different  %-40s %s  %s\n' "$name" "$first" "$second"
        failed=1
    fi
done
echo "digests: $equal of ${#cases[@]} equal"

for name in "${cases[@]}"; do
    ((rounds)) || break
    parse_case "$name"
    for ((round = 0; round < rounds; round++)); do
        order=(before after)
        ((round % 2)) && order=(after before)
        declare -A times=()
        for side in "${order[@]}"; do
            times[$side]=$(measure ms_per_step "${!side}" "${arguments[@]}" --steps "$steps" --repeat "$blocks")
        done
        if [[ ${times[before]} == failed* || ${times[after]} == failed* ]]; then
            echo "$name: ${times[before]}; ${times[after]}" >&2
            failed=1
            break
        fi
        awk -v a="${times[after]}" -v b="${times[before]}" 'BEGIN {print a / b}'
    done >"${ratios:=$(mktemp)}"
    [[ -s $ratios ]] && printf '%-44s %s\n' "$name" "$(quartiles <"$ratios")"
done
[[ -z ${ratios:-} ]] || rm -f "$ratios"
exit "$failed"
