#!/usr/bin/env bash
# The shared library shows the public functions (tu_…) and nothing else: no tu__…, no bare names.
#   exports.sh LIBRARY
set -uo pipefail

names=$(nm -D --defined-only "$1" | awk '{print $NF}') || exit 1
[[ -n $names ]] || { echo 'FAILED  the library exports nothing'; exit 1; }
strange=$(grep -vE '^tu_[a-z0-9]' <<<"$names")
[[ -z $strange ]] || { echo "FAILED  exported, but not public: ${strange//$'\n'/ }"; exit 1; }
echo "$(wc -l <<<"$names") public symbols"
