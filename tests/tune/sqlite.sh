#!/usr/bin/env bash
# Runs a command with the path of a new SQLite database, which is removed at the end:
#   sqlite.sh COMMAND [ARGUMENT…]       an argument {} is replaced by the path
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${@//\{\}/$work/study.db}"
