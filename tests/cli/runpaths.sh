#!/usr/bin/env bash
# Checks that no program or library searches the current folder for libraries. An empty or relative element of a
# RUNPATH would do that, and anybody who can write to the folder could inject code.
#   runpaths.sh FOLDER...
set -uo pipefail

count=0 failed=0
while read -r -d '' file; do
    path=$(readelf -d "$file" 2>/dev/null | sed -n 's/.*(R\(UN\)\?PATH).*\[\(.*\)\]$/\2/p')
    [[ -n $path ]] || continue
    ((count++))
    if [[ ":$path:" =~ :(:|[^/\$:]|\$[^O]) ]]; then
        echo "FAILED  $file has the RUNPATH '$path': expected only absolute folders and \$ORIGIN"
        failed=1
    fi
done < <(find "$@" -type f \( -perm -u+x -o -name '*.so*' \) -print0)
((count)) || { echo "FAILED  no file in $* has a RUNPATH: expected at least one"; exit 1; }
echo "$count files with a RUNPATH"
exit $failed
