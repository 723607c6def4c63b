#!/usr/bin/env bash
# Checks every command that `tutti --help` lists: --help prints its usage and exits with 0; an unknown option is
# rejected with one line and status 2.
#   every_command.sh TUTTI_PROGRAM
set -uo pipefail

tutti=$1 failed=0
report_failure() { echo "FAILED  $*"; failed=1; }

commands=$("$tutti" --help | awk '/^Commands:/ {on = 1; next} /^$/ {on = 0} on {print $1}')
[[ -n $commands ]] || report_failure 'tutti --help lists no commands'

for command in $commands; do
    if help=$("$tutti" "$command" --help 2>&1); then
        [[ ${help%%$'\n'*} == "Usage: tutti $command "* ]] || report_failure "$command --help does not start with its usage"
        grep -q -e '^  -h, --help ' <<<"$help" || report_failure "$command --help does not list --help"
        long=$(awk 'length($0) > 80' <<<"$help")
        [[ -z $long ]] || report_failure "$command --help has lines of more than 80 characters: $long"
    else
        report_failure "$command --help exits with $?"
    fi

    message=$("$tutti" "$command" --no-such-option 2>&1)
    status=$?
    [[ $status == 2 ]] || report_failure "$command --no-such-option exits with $status, expected 2"
    [[ $message == "tutti: $command: unknown option '--no-such-option': expected "* && $message != *$'\n'* ]] ||
        report_failure "$command --no-such-option prints: $message"
    echo "checked $command"
done
exit $failed
