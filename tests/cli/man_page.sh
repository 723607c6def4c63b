#!/usr/bin/env bash
# The manual tells of exactly the commands and options that the program has: each command has a section (.Ss NAME) in
# which each option of its --help stands as ".It Fl", and nothing else does; or a page of its own beside the manual,
# tutti-NAME.1, which then does that. mandoc, where installed, finds no fault.
#   man_page.sh TUTTI_PROGRAM MAN_PAGE
set -uo pipefail

tutti=$1 page=$2 failed=0
complain() { echo "FAILED  $*"; failed=1; }

# The options of a --help text, one a line, long and short: "--json", "-h".
help_options() {
    awk '/^Options:/ {on = 1; next} /^$/ {on = 0} on && /^ +-/ {
        for (i = 1; i <= NF && $i ~ /^-/; i++) { sub(",", "", $i); print $i }
    }' | sort -u
}

# The options that a part of the manual documents: ".It Fl b , Fl -batch Ar N" gives "-b" and "--batch".
manual_options() {
    awk '/^\.It Fl/ {for (i = 2; i < NF; i++) if ($i == "Fl") print "-" $(i + 1)}' | sort -u
}

# The lines of one section or subsection: manual_part .Ss graph
manual_part() {
    awk -v head="$1 $2" '/^\.S[hs] / {on = ($0 == head); next} on' "$page"
}

compare() { # what help-options manual-options
    local only
    only=$(comm -23 <(echo "$2") <(echo "$3"))
    [[ -z $only ]] || complain "the manual does not document for $1: ${only//$'\n'/ }"
    only=$(comm -13 <(echo "$2") <(echo "$3"))
    [[ -z $only ]] || complain "the manual documents for $1 what --help does not list: ${only//$'\n'/ }"
}

overview=$("$tutti" --help)
compare 'tutti' "$(help_options <<<"$overview")" "$(manual_part .Sh OPTIONS | manual_options)"

# --help and -h are the same in all commands: the manual says so once.
commands=$(awk '/^Commands:/ {on = 1; next} /^$/ {on = 0} on {print $1}' <<<"$overview")
for command in $commands; do
    own=${page%/*}/tutti-$command.1
    grep -qx "\.Ss $command" "$page" || complain "the manual has no section '.Ss $command'"
    documented=$(manual_part .Ss "$command" | manual_options)
    [[ -e $own ]] && documented+=$(manual_options <"$own")
    compare "tutti $command" "$("$tutti" "$command" --help | help_options | grep -vxe --help -e -h)" "$documented"
done
for own in "${page%/*}"/tutti-*.1; do
    name=${own##*/tutti-}
    [[ ! -e $own ]] || grep -qx "${name%.1}" <<<"$commands" || complain "there is a page '$own', but no such command"
done
while read -r section; do
    grep -qx "$section" <<<"$commands" || complain "the manual has a section for '$section', which is no command"
done < <(sed -n 's/^\.Ss //p' "$page")

if command -v mandoc >/dev/null; then
    for each in "$page" "${page%/*}"/tutti-*.1; do
        [[ ! -e $each ]] || faults=$(mandoc -T lint -W warning "$each") || complain "mandoc: $faults"
    done
fi
exit $failed
