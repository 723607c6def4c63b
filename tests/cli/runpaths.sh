#!/usr/bin/env bash
# No program or library looks for libraries in the current folder: an element of a RUNPATH that is empty or relative would,
# and whoever can write a file there could bring code of his own into the process.
#   runpaths.sh FOLDER...
set -uo pipefail

count=0 failed=0
while read -r -d '' file; do
    path=$(readelf -d "$file" 2>/dev/null | sed -n 's/.*(R\(UN\)\?PATH).*\[\(.*\)\]$/\2/p')
    [[ -n $path ]] || continue
    ((count++))
    if [[ ":$path:" =~ :(:|[^/\$:]|\$[^O]) ]]; then
        echo "FAILED  $file looks for libraries in '$path': expected absolute folders and \$ORIGIN alone"
        failed=1
    fi
done < <(find "$@" -type f \( -perm -u+x -o -name '*.so*' \) -print0)
((count)) || { echo "FAILED  no file with a RUNPATH in $*: expected some"; exit 1; }
echo "$count files with a RUNPATH"
exit $failed
