#!/usr/bin/env bash
# What the design promises of every command, checked for each one that `tutti --help` lists: --help explains it and
# exits 0; an unknown option is refused in one line with status 2.
#   every_command.sh TUTTI_PROGRAM
set -uo pipefail

tutti=$1 failed=0
complain() { echo "FAILED  $*"; failed=1; }

commands=$("$tutti" --help | awk '/^Commands:/ {on = 1; next} /^$/ {on = 0} on {print $1}')
[[ -n $commands ]] || complain 'tutti --help lists no commands'

for command in $commands; do
    if help=$("$tutti" "$command" --help 2>&1); then
        [[ ${help%%$'\n'*} == "Usage: tutti $command "* ]] || complain "$command --help does not begin with its usage"
        grep -q -e '^  -h, --help ' <<<"$help" || complain "$command --help does not list --help"
        long=$(awk 'length($0) > 80' <<<"$help")
        [[ -z $long ]] || complain "$command --help has lines of more than 80 characters: $long"
    else
        complain "$command --help exits with $?"
    fi

    message=$("$tutti" "$command" --no-such-option 2>&1)
    status=$?
    [[ $status == 2 ]] || complain "$command --no-such-option exits with $status, expected 2"
    [[ $message == "tutti: $command: unknown option '--no-such-option': expected "* && $message != *$'\n'* ]] ||
        complain "$command --no-such-option says: $message"
    echo "checked $command"
done
exit $failed
