#!/usr/bin/env bash
# Checks that docs/operations.md has one row for each operation of ops.def, and names exactly the functions of the
# headers and every attribute.
#   operations.sh SOURCE_DIR
set -uo pipefail
cd "$1"

failed=0
report_failure() { echo "FAILED  $*"; failed=1; }

table=$(sed -nE 's/^(OP|POINTWISE)\([A-Z0-9_]+, *([a-z0-9_]+),.*/\2/p' src/graph/ops.def | sort)
rows=$(sed -nE 's/^\| `([a-z0-9_]+)` \|.*/\1/p' docs/operations.md | sort)
[[ -n $table ]] || report_failure 'no operation found in src/graph/ops.def'
only=$(comm -23 <(echo "$table") <(echo "$rows"))
[[ -z $only ]] || report_failure "no row in docs/operations.md for: ${only//$'\n'/ }"
only=$(comm -13 <(echo "$table") <(echo "$rows"))
[[ -z $only ]] || report_failure "rows in docs/operations.md without an operation, or duplicate rows: ${only//$'\n'/ }"

while read -r function; do
    grep -qE "\b$function(_with)?\(" include/tutti/*.h || report_failure "docs/operations.md names $function, which no header declares"
done < <(grep -oE '`tu_[a-z0-9_]+\(' docs/operations.md | tr -d '`(' | sort -u)

# The page names the function of every operation in ops.h.
while read -r function; do
    grep -qE "\`$function\b" docs/operations.md || report_failure "docs/operations.md does not name $function"
done < <(sed -nE 's/^TU_API tu_value (tu_[a-z0-9_]+)\(.*/\1/p' include/tutti/ops.h | sed 's/_with$//' | sort -u)

# The section "Attributes" names every attribute.
section=$(sed -n '/^## Attributes/,$p' docs/operations.md)
while read -r attribute; do
    grep -qF "\`$attribute\`" <<<"$section" || report_failure "docs/operations.md does not describe the attribute $attribute"
done < <(grep -oE 'ATTR\([A-Z0-9]+, [a-z_]+' src/graph/ops.def | sed 's/.*, //' | sort -u)

((failed)) || echo "$(wc -l <<<"$table") operations documented"
exit $failed
