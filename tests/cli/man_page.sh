#!/usr/bin/env bash
# Checks that the man page documents exactly the commands and options of the program: each command has a section (.Ss
# NAME) with one ".It Fl" per option of its --help. If a page tutti-NAME.1 exists, the options may be there instead.
# Runs mandoc's checks if mandoc is installed.
#   man_page.sh TUTTI_PROGRAM MAN_PAGE
set -uo pipefail

tutti=$1 page=$2 failed=0
report_failure() { echo "FAILED  $*"; failed=1; }

# Prints the options of a --help text, one per line, long and short: "--json", "-h".
help_options() {
    awk '/^Options:/ {on = 1; next} /^$/ {on = 0} on && /^ +-/ {
        for (i = 1; i <= NF && $i ~ /^-/; i++) { sub(",", "", $i); print $i }
    }' | sort -u
}

# Prints the options that a section documents: ".It Fl b , Fl -batch Ar N" gives "-b" and "--batch".
manual_options() {
    awk '/^\.It Fl/ {for (i = 2; i < NF; i++) if ($i == "Fl") print "-" $(i + 1)}' | sort -u
}

# Prints one section or subsection: manual_section .Ss graph
manual_section() {
    awk -v head="$1 $2" '/^\.S[hs] / {on = ($0 == head); next} on' "$page"
}

compare() { # COMMAND HELP_OPTIONS MANUAL_OPTIONS
    local difference
    difference=$(comm -23 <(echo "$2") <(echo "$3"))
    [[ -z $difference ]] || report_failure "the manual does not document these options of $1: ${difference//$'\n'/ }"
    difference=$(comm -13 <(echo "$2") <(echo "$3"))
    [[ -z $difference ]] || report_failure "the manual documents options of $1 that --help does not list: ${difference//$'\n'/ }"
}

overview=$("$tutti" --help)
compare 'tutti' "$(help_options <<<"$overview")" "$(manual_section .Sh OPTIONS | manual_options)"

# --help and -h are the same in all commands: the manual documents them once.
commands=$(awk '/^Commands:/ {on = 1; next} /^$/ {on = 0} on {print $1}' <<<"$overview")
for command in $commands; do
    command_page=${page%/*}/tutti-$command.1
    grep -qx "\.Ss $command" "$page" || report_failure "the manual has no section '.Ss $command'"
    documented=$(manual_section .Ss "$command" | manual_options)
    [[ -e $command_page ]] && documented+=$(manual_options <"$command_page")
    compare "tutti $command" "$("$tutti" "$command" --help | help_options | grep -vxe --help -e -h)" "$documented"
done
for command_page in "${page%/*}"/tutti-*.1; do
    name=${command_page##*/tutti-}
    [[ ! -e $command_page ]] || grep -qx "${name%.1}" <<<"$commands" || report_failure "page '$command_page' exists, but the command does not"
done
while read -r section; do
    grep -qx "$section" <<<"$commands" || report_failure "the manual has a section for '$section', which is not a command"
done < <(sed -n 's/^\.Ss //p' "$page")

if command -v mandoc >/dev/null; then
    for file in "$page" "${page%/*}"/tutti-*.1; do
        [[ ! -e $file ]] || faults=$(mandoc -T lint -W warning "$file") || report_failure "mandoc: $faults"
    done
fi
exit $failed
