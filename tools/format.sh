#!/usr/bin/env bash
# Formats every C file with clang-format. With --check, lists the files that are not formatted and fails if there are any.
#   tools/format.sh [--check]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folders=()
for folder in include src tests examples bench; do
    if [[ -d $folder ]]; then folders+=("$folder"); fi
done
mapfile -d '' files < <(find "${folders[@]}" -name '*.[ch]' -print0 | sort -z)

case ${1:-} in
'') clang-format --style=file -i "${files[@]}" ;;
--check)
    if ! faults=$(clang-format --style=file --dry-run --Werror "${files[@]}" 2>&1); then
        sed -n 's/^\([^:]*\):\([0-9]*\):[0-9]*: error: .*/\1:\2/p' <<<"$faults" | sort -u -t : -k 1,1
        echo 'These files are not formatted (first line of each): run tools/format.sh'
        exit 1
    fi
    ;;
*) echo "format.sh: unknown option '$1': expected --check or nothing" >&2; exit 2 ;;
esac
