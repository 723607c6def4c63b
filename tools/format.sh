#!/usr/bin/env bash
# Lays out every C file of the tree by .clang-format; with --check only says which are not, and fails if any.
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
        echo 'These are the first lines of each file that .clang-format lays out otherwise: tools/format.sh mends them.'
        exit 1
    fi
    ;;
*) echo "format.sh: unknown option '$1': expected --check or nothing" >&2; exit 2 ;;
esac
