#!/usr/bin/env bash
# Checks that sources open, map, rename and remove files only through base/open_file.h, base/map_file.h and base/save.h, and
# print only where the filter of the terminal sees it (decision 49). doors.txt lists the exceptions, with a reason each.
#   doors.sh SOURCES
set -uo pipefail
sources=$1
list=$(dirname "${BASH_SOURCE[0]}")/doors.txt
calls='open|openat|openat2|creat|fopen|fdopen|freopen|fopencookie|open_memstream|gzopen|gzdopen|mmap|mmap64|rename|renameat|renameat2|unlink|unlinkat|remove|rmdir|opendir|fdopendir|mkdir|mkdirat|truncate|ftruncate|symlink|link|linkat|mkstemp|mkdtemp|mkfifo|tmpfile|shm_open|chmod|popen|system'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Calls of the functions themselves: not members (x->open(…)), not names that end in one, not comments or declarations.
(cd "$sources" && grep -rnoE --include='*.[ch]' "(^|[^A-Za-z0-9_>.\"'*])($calls)\(" . |
    sed -E "s#^\./([^:]+):([0-9]+):.*[^a-z0-9]?\b($calls)\(\$#\1 \3 \2#") | while read -r file call line; do
    sed -n "${line}p" "$sources/$file" | grep -qE '^ *(\*|/\*|//)|\.name = "' || echo "$file $call $line"
done >"$work/found"
found=$(wc -l <"$work/found")
((found >= 20)) || { echo "FAILED  found only $found calls in $sources: is the pattern still right?"; exit 1; }

awk -v list="$list" '
    BEGIN {
        while ((getline line < list) > 0) {
            if (line ~ /^#/ || line ~ /^ *$/) continue
            split(line, word, /[ \t]+/)
            count = split(word[2], names, ",")
            for (i = 1; i <= count; i++) allowed[word[1], names[i]] = line
        }
    }
    ($1, $2) in allowed { used[$1, $2] = 1; next }
    { print "FAILED  src/" $1 ":" $3 " calls " $2 "(): use base/open_file.h, or add a reason to doors.txt"; failures++ }
    END {
        for (key in allowed) if (!(key in used)) { split(key, p, SUBSEP); print "FAILED  doors.txt allows " p[2] " in " p[1] ", which does not call it"; failures++ }
        exit failures > 0
    }' "$work/found" || exit 1
# Direct output to the terminal, around the filter.
direct=$(cd "$sources" && grep -rnE --include='*.[ch]' '(^|[^a-z_])(write|writev)\((1|2|STD(OUT|ERR)_FILENO),|dprintf\(' . |
    grep -vE '^\./cli/(terminal|launched)\.c:')
if [[ $direct ]]; then
    sed 's#^\./#FAILED  src/#; s#$# (prints around the filter of cli/terminal.c)#' <<<"$direct"
    exit 1
fi
echo "doors: $found calls, all of them allowed"
