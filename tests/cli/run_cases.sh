#!/usr/bin/env bash
# Runs a list of command lines and compares their output with the expected output.
#   run_cases.sh TUTTI_PROGRAM LIST.cases
#
# A list consists of cases such as
#
#   # A misspelt command is rejected with a suggestion.
#   $ tutti grpah
#   status 2
#   stderr did you mean 'graph'\?$
#
# The last comment before "$" is the case's title. The text after "$ " is run by bash in a new, empty folder. `tutti`
# is on the PATH, $TESTS is this folder, and $SMALL is the name of a data set of 256 small images, for fast training.
# Then follow expectations, each optional and repeatable:
#
#   status N        the exit status (default 0)
#   stdout REGEX    a line of standard output matches the extended regular expression
#   stderr REGEX    the same for standard error
#   no stdout       standard output is empty; with a REGEX: no line of it matches
#   no stderr       the same for standard error
#   explained       the error message may have more lines after the first, which must be indented or empty
#
# A case times out after TUTTI_CASE_SECONDS (default 60). For every case with status 2 (invalid input) the script also
# checks: one line on standard error that starts with "tutti: ", nothing on standard output, no file created.
set -uo pipefail

program=$(realpath "$1") list=$(realpath "$2")
export LC_ALL=C
export TESTS=${list%/*}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/home"
ln -s "$program" "$scratch/bin/tutti"
export PATH=$scratch/bin:$PATH HOME=$scratch/home

# The data set $SMALL: 256 images of 8 x 8 x 3 bytes in ten classes. The pixel values depend on the class.
write_array() { # FILE SHAPE AWK_EXPRESSION_OF_BYTE_i BYTES
    local header="{'descr': '|u1', 'fortran_order': False, 'shape': ($2), }"
    { printf '\223NUMPY\1\0'; printf "\\$(printf %o ${#header})\\0%s" "$header"
      awk "BEGIN { for (i = 0; i < $4; i++) printf \"%c\", $3 }"; } >"$1"
}
write_array "$scratch/images.npy" '256, 8, 8, 3' '(int(i / 192) % 10 * 20 + i * 89 % 51) % 251' $((256 * 192))
write_array "$scratch/labels.npy" '256,' 'i % 10' 256
export SMALL=$scratch/images.npy,$scratch/labels.npy

total=0 failed=0
title='' command='' line_number=0
declare -a problems

report() { problems+=("$1"); }

run_case() { # $command
    rm -rf "$scratch/work"
    mkdir "$scratch/work"
    (cd "$scratch/work" && timeout "${TUTTI_CASE_SECONDS:-60}" bash -c "$command") >"$scratch/stdout" 2>"$scratch/stderr" </dev/null
    status=$?
    expected=0 explained=
    problems=()
    ((total++))
}

expect_error_message() { # the rules for status 2
    if [[ $explained ]]; then
        ! tail -n +2 "$scratch/stderr" | grep -q '^[^ ]' || report 'the lines after the error message are not indented'
    else
        [[ $(wc -l <"$scratch/stderr") == 1 ]] || report 'standard error is not one line'
    fi
    head -n 1 "$scratch/stderr" | grep -q '^tutti: ' || report 'the error message does not start with "tutti: "'
    [[ -s $scratch/stdout ]] && report 'standard output is not empty'
    [[ -n $(ls -A "$scratch/work") ]] && report 'a file was created'
}

finish_case() {
    [[ -n $command ]] || return 0
    [[ $status == "$expected" ]] || report "exit status $status, expected $expected"
    [[ $expected == 2 ]] && expect_error_message
    if ((${#problems[@]} == 0)); then
        echo "ok      $title"
    else
        ((failed++))
        echo "FAILED  $title"
        echo "        ${list##*/}:$line_number: \$ $command"
        printf '        %s\n' "${problems[@]}"
        sed 's/^/        stdout| /' "$scratch/stdout" | head -n 20
        sed 's/^/        stderr| /' "$scratch/stderr" | head -n 20
    fi
    command='' title=''
}

expect_line() { # stream regex
    grep -qE -e "$2" "$scratch/$1" || report "no line of $1 matches: $2"
}

expect_none() { # stream [regex]
    local stream=${1%% *} regex=''
    [[ $1 == *' '* ]] && regex=${1#* }
    ! grep -qE -e "$regex" "$scratch/$stream" || report "a line of $stream matches: ${regex:-anything}"
}

number=0
while IFS= read -r line || [[ -n $line ]]; do
    ((number++))
    case $line in
    '') ;;
    '#'*) finish_case; title=${line#\#}; title=${title# } ;;
    '$ '*) finish_case; command=${line#\$ } line_number=$number title=${title:-$command}; run_case ;;
    'status '*) expected=${line#status } ;;
    'stdout '*) expect_line stdout "${line#stdout }" ;;
    'stderr '*) expect_line stderr "${line#stderr }" ;;
    'no '*) expect_none "${line#no }" ;;
    explained) explained=1 ;;
    *) echo "$list:$number: cannot parse this line: $line"; exit 2 ;;
    esac
done <"$list"
finish_case

echo "$((total - failed)) of $total cases passed"
((total > 0 && failed == 0))
