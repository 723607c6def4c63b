#!/usr/bin/env bash
# docs/operations.md has one row for each operation of the table, and the functions it names are in the headers.
#   operations.sh SOURCE_DIR
set -uo pipefail
cd "$1"

failed=0
complain() { echo "FAILED  $*"; failed=1; }

table=$(sed -nE 's/^(OP|POINTWISE)\([A-Z0-9_]+, *([a-z0-9_]+),.*/\2/p' src/graph/ops.def | sort)
rows=$(sed -nE 's/^\| `([a-z0-9_]+)` \|.*/\1/p' docs/operations.md | sort)
[[ -n $table ]] || complain 'no operation found in src/graph/ops.def'
only=$(comm -23 <(echo "$table") <(echo "$rows"))
[[ -z $only ]] || complain "no row in docs/operations.md for: ${only//$'\n'/ }"
only=$(comm -13 <(echo "$table") <(echo "$rows"))
[[ -z $only ]] || complain "a row in docs/operations.md, but no operation, or a row twice: ${only//$'\n'/ }"

while read -r function; do
    grep -qE "\b$function(_with)?\(" include/tutti/*.h || complain "docs/operations.md names $function, which no header declares"
done < <(grep -oE '`tu_[a-z0-9_]+\(' docs/operations.md | tr -d '`(' | sort -u)

# And the other way: every operation's function in the header is in the page.
while read -r function; do
    grep -qE "\`$function\b" docs/operations.md || complain "docs/operations.md does not name $function"
done < <(sed -nE 's/^TU_API tu_value (tu_[a-z0-9_]+)\(.*/\1/p' include/tutti/ops.h | sed 's/_with$//' | sort -u)

((failed)) || echo "$(wc -l <<<"$table") operations documented"
exit $failed
