# Functions of the tests of `tutti launch`; sourced. The caller sets $tutti. Its files are in $TMPDIR.
# shellcheck shell=bash disable=SC2034,SC2054 # variables of the caller; a list of options
set -uo pipefail
cd "$TMPDIR" || exit

# 64 images of 4 x 4 bytes in four classes, so that a step takes about a millisecond.
write_array() { # FILE SHAPE AWK_EXPRESSION_OF_BYTE_i BYTES
    local header="{'descr': '|u1', 'fortran_order': False, 'shape': ($2), }"
    { printf '\223NUMPY\1\0'; printf "\\$(printf %o ${#header})\\0%s" "$header"
      awk "BEGIN { for (i = 0; i < $4; i++) printf \"%c\", $3 }"; } >"$1"
}
export LC_ALL=C # awk prints bytes
write_array images.npy '64, 4, 4, 1' '(int(i / 16) % 10 * 20 + i * 89 % 51) % 251' 1024
write_array labels.npy '64,' 'i % 4' 64

# The training of all tests: with --invariant its result does not depend on the number of processes.
training=(train mlp --data images.npy,labels.npy --steps 600 --batch 8 --invariant 4 --threads 1
    --checkpoint-every 50 --evaluate-every 300 --keep 100 --collective-timeout 20)

failed=0
# complain WHAT FILE...: reports a failure, with the contents of files.
complain() {
    echo "FAILED  $1"
    shift
    tail -n 40 "$@" | sed 's/^/    /'
    failed=1
}
# expect_status WHAT EXPECTED ACTUAL FILE...
expect_status() { [[ $2 == "$3" ]] || complain "$1: status $3, expected $2" "${@:4}"; }
# expect_line WHAT REGEX FILE...: one of the files has such a line.
expect_line() { grep -qE -e "$2" "${@:3}" || complain "$1: no line matches: $2" "${@:3}"; }

digest_of() { sed -n 's/^digest *//p' "$1"; }
# expect_digest WHAT FILE: the run ended with the weights of an undisturbed run.
expect_digest() {
    [[ -n $digest && $(digest_of "$2") == "$digest" ]] || complain "$1: digest '$(digest_of "$2")', expected '$digest'" "$2"
}

# wait_for_checkpoint FOLDER STEP PID: waits until the run has saved this step; false if the process ends before.
wait_for_checkpoint() {
    until [[ -e $1/checkpoints/step-$2.safetensors ]]; do
        kill -0 "$3" 2>/dev/null || return
        sleep 0.02
    done
}

# find_rank RANK LAUNCH: the process id of a rank, a child of the mpirun that `tutti launch` has started. The processes
# that label lines have the same name and environment, and another parent.
find_rank() {
    local id
    for id in $(pgrep -x -P "$(pgrep -x -P "$2" mpirun)" tutti); do
        if grep -qzxF "OMPI_COMM_WORLD_RANK=$1" "/proc/$id/environ"; then echo "$id"; fi
    done
}

# Waits until no process has this variable in its environment; false if one is left after 20 seconds.
wait_until_gone() { # NAME=VALUE
    local i
    for ((i = 0; i < 200; i++)); do
        grep -lszqxF "$1" /proc/[0-9]*/environ || return 0
        sleep 0.1
    done
    return 1
}
