#!/usr/bin/env bash
# Checks that no folder of src/ uses a folder of a higher layer (layers.txt), neither by #include nor by a symbol. The
# command line (src/cli) may use only public headers and public symbols.
#   layers.sh SOURCES OBJECTS       OBJECTS: a file that lists the object files of the libraries, the plug-in and src/cli
set -uo pipefail
sources=$1 objects=$2
table=$(dirname "${BASH_SOURCE[0]}")/layers.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Edges: "USING_FILE USED_FILE REASON", with paths relative to src/.
(cd "$sources" && grep -rnoE --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.def' '^#include "[^"]+"' .) |
    sed -E 's#^\./([^:]+):([0-9]+):\#include "([^"]+)"#\1 \3 line-\2#' | awk '
        { if ($2 !~ /\//) { folder = $1; sub(/\/[^\/]*$/, "", folder); $2 = folder "/" $2 } print }' >"$work/edges"
includes=$(wc -l <"$work/edges")

# The path of an object ends in src/…/NAME.dir/FOLDER/FILE.c.o; those of the plug-in are relative to src/device/cuda.
symbols=0
while read -r object; do
    file=${object##*.dir/}
    file=${file#./}
    file=${file%.o}
    [[ $object == */tutti_cuda.dir/* ]] && file=device/cuda/$file
    nm -P "$object" | awk -v file="$file" '$2 ~ /^[TDBRVWC]$/ {print "D", $1, file} $2 == "U" {print "U", $1, file}'
done <"$objects" >"$work/symbols"
awk '$1 == "D" && !($2 in definer) {definer[$2] = $3} $1 == "U" {needs[++n] = $2 " " $3}
     END {for (i = 1; i <= n; i++) {split(needs[i], p, " "); if (p[1] in definer) print p[2], definer[p[1]], p[1]}}' \
    "$work/symbols" >"$work/linked"
symbols=$(wc -l <"$work/linked")
if ((includes < 500 || symbols < 1000)); then
    echo "FAILED  found $includes includes and $symbols symbols: expected thousands (are $objects built?)"
    exit 1
fi
cat "$work/linked" >>"$work/edges"

awk -v table="$table" '
    function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }
    function allowed(from, to) {
        if (from == to || (from, to) in named) return 1
        return !(from in restricted) && rank[to] < rank[from] && !(to in restricted)
    }
    BEGIN {
        while ((getline line < table) > 0) {
            if (line ~ /^#/ || line ~ /^ *$/) continue
            count = split(line, word, /[ \t]+/)
            rank[word[1]] = ++last
            if (count > 1 && word[2] == "only") restricted[word[1]] = 1
            for (i = 3; i <= count; i++) if (word[i] != "") named[word[1], word[i]] = 1
        }
    }
    {
        from = folder_of($1); to = folder_of($2)
        if (!(from in rank)) { missing[from] = 1; next }
        if (!(to in rank)) { missing[to] = 1; next }
        if (from == "cli" && $3 !~ /^line-/ && $3 ~ /^tu_[a-z0-9]/) next # public functions
        if (!allowed(from, to)) { print "FAILED  src/" $1 " uses src/" $2 " (" $3 "): " from " may not use " to; failures++ }
    }
    END {
        for (m in missing) { print "FAILED  src/" m " is not in " table; failures++ }
        exit failures > 0
    }' "$work/edges" | sort -u | tee "$work/failures" | head -60
if [[ -s $work/failures ]]; then
    echo "$(wc -l <"$work/failures") forbidden uses"
    exit 1
fi
echo "layers: $includes includes and $symbols symbols of $(wc -l <"$objects") objects, no forbidden use"
