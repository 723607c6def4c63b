#!/usr/bin/env bash
# Runs a list of command lines and compares what each answers with what is expected of it.
#   run_cases.sh TUTTI_PROGRAM LIST.cases
#
# A list is made of cases like
#
#   # A misspelt command is refused and the nearest is named.
#   $ tutti grpah
#   status 2
#   stderr did you mean 'graph'\?$
#
# The last comment before "$" is the case's title. The line after "$ " is run by bash, in an empty folder of its own,
# with the program on the PATH as `tutti`, this folder's tests as $TESTS, and $SMALL as the name of a set of 256 pictures:
# to train on it and to test takes no time. Then, each optional and repeatable:
#
#   status N        the exit status (0 unless given)
#   stdout REGEX    a line of standard output matches the extended regular expression
#   stderr REGEX    likewise of standard error
#   no stdout       nothing was printed there; with a REGEX after it: no line matches
#   no stderr       likewise
#   explained       a refusal may have more lines after its first, which are indented or empty
#
# A case may take 60 seconds, or TUTTI_CASE_SECONDS. Of every case with status 2 the product's promise is checked
# without asking: one line on standard error that begins with "tutti: ", nothing on standard output, no file made.
set -uo pipefail

program=$(realpath "$1") list=$(realpath "$2")
export LC_ALL=C
export TESTS=${list%/*}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/home"
ln -s "$program" "$scratch/bin/tutti"
export PATH=$scratch/bin:$PATH HOME=$scratch/home

# Arrays as NumPy writes them: 256 pictures of 8 x 8 x 3 bytes in ten classes, some bytes of each told by its class.
write_array() { # file, shape, the value of byte i as awk computes it, how many bytes
    local header="{'descr': '|u1', 'fortran_order': False, 'shape': ($2), }"
    { printf '\223NUMPY\1\0'; printf "\\$(printf %o ${#header})\\0%s" "$header"
      awk "BEGIN { for (i = 0; i < $4; i++) printf \"%c\", $3 }"; } >"$1"
}
write_array "$scratch/images.npy" '256, 8, 8, 3' '(int(i / 192) % 10 * 20 + i * 89 % 51) % 251' $((256 * 192))
write_array "$scratch/labels.npy" '256,' 'i % 10' 256
export SMALL=$scratch/images.npy,$scratch/labels.npy

total=0 failed=0
title='' command='' place=0
declare -a problems

problem() { problems+=("$1"); }

run_case() { # $command
    rm -rf "$scratch/work"
    mkdir "$scratch/work"
    (cd "$scratch/work" && timeout "${TUTTI_CASE_SECONDS:-60}" bash -c "$command") >"$scratch/stdout" 2>"$scratch/stderr" </dev/null
    status=$?
    wanted=0 explained=
    problems=()
    ((total++))
}

expect_promise() { # what status 2 stands for
    if [[ $explained ]]; then
        ! tail -n +2 "$scratch/stderr" | grep -q '^[^ ]' || problem 'the explanation of the refusal is not indented'
    else
        [[ $(wc -l <"$scratch/stderr") == 1 ]] || problem 'standard error is not one line'
    fi
    head -n 1 "$scratch/stderr" | grep -q '^tutti: ' || problem 'the refusal does not begin with "tutti: "'
    [[ -s $scratch/stdout ]] && problem 'standard output is not empty'
    [[ -n $(ls -A "$scratch/work") ]] && problem 'something was written'
}

finish_case() {
    [[ -n $command ]] || return 0
    [[ $status == "$wanted" ]] || problem "exit status $status, expected $wanted"
    [[ $wanted == 2 ]] && expect_promise
    if ((${#problems[@]} == 0)); then
        echo "ok      $title"
    else
        ((failed++))
        echo "FAILED  $title"
        echo "        ${list##*/}:$place: \$ $command"
        printf '        %s\n' "${problems[@]}"
        sed 's/^/        stdout| /' "$scratch/stdout" | head -n 20
        sed 's/^/        stderr| /' "$scratch/stderr" | head -n 20
    fi
    command='' title=''
}

expect_line() { # stream regex
    grep -qE -e "$2" "$scratch/$1" || problem "no line of $1 matches: $2"
}

expect_none() { # stream [regex]
    local stream=${1%% *} regex=''
    [[ $1 == *' '* ]] && regex=${1#* }
    ! grep -qE -e "$regex" "$scratch/$stream" || problem "a line of $stream matches: ${regex:-anything}"
}

number=0
while IFS= read -r line || [[ -n $line ]]; do
    ((number++))
    case $line in
    '') ;;
    '#'*) finish_case; title=${line#\#}; title=${title# } ;;
    '$ '*) finish_case; command=${line#\$ } place=$number title=${title:-$command}; run_case ;;
    'status '*) wanted=${line#status } ;;
    'stdout '*) expect_line stdout "${line#stdout }" ;;
    'stderr '*) expect_line stderr "${line#stderr }" ;;
    'no '*) expect_none "${line#no }" ;;
    explained) explained=1 ;;
    *) echo "$list:$number: cannot read this line: $line"; exit 2 ;;
    esac
done <"$list"
finish_case

echo "$((total - failed)) of $total cases passed"
((total > 0 && failed == 0))
