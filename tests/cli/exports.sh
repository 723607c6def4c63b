#!/usr/bin/env bash
# The shared library shows the public functions (tu_…), and those internal ones that its own devices in other libraries
# call (TU__SHARED in src/), and nothing else: no other tu__…, no bare names.
#   exports.sh LIBRARY SOURCES
set -uo pipefail

names=$(nm -D --defined-only "$1" | awk '{print $NF}') || exit 1
[[ -n $names ]] || { echo 'FAILED  the library exports nothing'; exit 1; }
shared=$(grep -rhA1 --include='*.h' '^TU__SHARED ' "$2" | grep -oE 'tu__[a-z0-9_]+\(' | tr -d '(' | sort -u)
strange=$(grep -vE '^tu_[a-z0-9]' <<<"$names" | grep -vxF "$shared")
[[ -z $strange ]] || { echo "FAILED  exported, but neither public nor shared: ${strange//$'\n'/ }"; exit 1; }
echo "$(grep -cE '^tu_[a-z0-9]' <<<"$names") public symbols, $(grep -cE '^tu__' <<<"$names") shared with devices"
