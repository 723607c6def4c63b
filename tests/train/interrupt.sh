#!/usr/bin/env bash
# Interrupts commands at random moments and repeats them until they finish: the results have the same bits as those of an
# uninterrupted command, nothing is left over, and every exit status is that of the manual.
#   interrupt.sh TUTTI [--rounds N] [--seed N] [--signals LIST] [--kinds LIST]
# N interruptions for each signal (default KILL) and each kind (default: train ensemble tune launch export). The signals are
# those of kill(1); PIPE closes the pipe that the command writes its progress to.
set -uo pipefail

tutti=$(realpath "$1")
shift
rounds=10 seed=1 signals=KILL kinds='train ensemble tune launch export'
while (($#)); do
    case $1 in
    --rounds) rounds=$2 ;;
    --seed) seed=$2 ;;
    --signals) signals=$2 ;;
    --kinds) kinds=$2 ;;
    *) echo "interrupt.sh: unknown option '$1'" >&2; exit 2 ;;
    esac
    shift 2
done

# shellcheck source-path=SCRIPTDIR
source "$(dirname "$0")/small_data.sh"
mkdir "$scratch/start"
RANDOM=$seed
kills=0 failures=0

fail() {
    echo "FAILED  $*"
    sed 's/^/        /' "$scratch/err" | tail -n 8
    ((failures++))
}

# ---- The commands ----

network=(mlp -d "$data" --base 8 --batch 32 --threads 1)
training=("${network[@]}" --steps 40 --checkpoint-every 2 --evaluate-every 10)
trials=("${network[@]}" --steps 10 --checkpoint-every 2 --evaluate-every 5 --try 'rate=0.1|0.01' --sampler grid
    --pruner none --attempts 1000)

# Sets `command` to the one that starts a work, or continues it if there is something to continue.
choose_command() { # KIND
    local is_begun=
    case $1 in
    train | launch) [[ -e run/config.json ]] && is_begun=1 ;;
    ensemble) [[ -e run/config.json ]] && is_begun=1 ;;
    tune) "$tutti" tune --status --study run >/dev/null 2>&1 && is_begun=1 ;; # a killed start leaves an empty one
    esac
    local launcher=()
    [[ $1 == launch ]] && launcher=(launch -n 2 --)
    case $1$is_begun in
    train | launch) command=("$tutti" "${launcher[@]}" train "${training[@]}" -o run) ;;
    ensemble) command=("$tutti" train "${training[@]}" --ensemble 2 -o run) ;;
    tune) command=("$tutti" tune "${trials[@]}" --study run) ;;
    tune1) command=("$tutti" tune --worker --study run --threads 1 --heartbeat-timeout 0.5) ;;
    export) command=("$tutti" export "$scratch/trained" run/m.model) ;;
    *) command=("$tutti" "${launcher[@]}" train run --resume) ;;
    esac
}

# Prints what must have the same bits.
result_of() { # KIND
    case $1 in
    train | launch) grep -E '^(digest|test|validation) ' "$scratch/out" ;;
    ensemble) grep -E '^[0-9]+ ' "$scratch/out" ;;
    tune) "$tutti" tune --study run --export csv | cut -d, -f1-6,8 ;;
    export) sha256sum run/m.model | cut -d' ' -f1 ;;
    esac
}

# ---- Interrupting ----

# Processes of the command, which work in its folder.
processes() {
    local process
    for process in /proc/[0-9]*; do
        [[ $(readlink "$process/cwd") == "$scratch/work" ]] || continue
        grep -qE '^(tutti|mpirun|orterun|orted)$' "$process/comm" 2>/dev/null && echo "${process#/proc/}"
    done
}

wait_for_processes() { # KIND
    for ((i = 0; i < 600; i++)); do
        [[ -z $(processes) ]] && return
        sleep 0.1
    done
    fail "$1: processes outlive the command: $(processes | tr '\n' ' ')"
    # shellcheck disable=SC2046
    kill -KILL $(processes)
}

# Runs `command` and interrupts it after `delay` seconds, unless that is empty.
run_command() { # SIGNAL DELAY
    local signal=$1 delay=$2
    : >"$scratch/out"
    : >"$scratch/err"
    if [[ $signal == PIPE && $delay ]]; then
        env --default-signal=PIPE "${command[@]}" >"$scratch/out" 2> >(exec sleep "$delay" >/dev/null)
        status=$?
        : >"$scratch/err"
        return
    fi
    env --default-signal=INT,TERM,HUP "${command[@]}" >"$scratch/out" 2>"$scratch/err" &
    local process=$!
    if [[ $delay ]]; then
        sleep "$delay"
        kill -"$signal" $process 2>/dev/null
    fi
    { wait $process; } 2>/dev/null
    status=$?
}

# True if the command may end with this status after the signal: it is done; it is stopped and saved; or it was not yet
# catching signals, which ends it as any program.
is_right_status() { # KIND SIGNAL STATUS
    local number
    number=$((128 + $(kill -l "$2")))
    case $2 in
    KILL) [[ $3 == 0 || $3 == "$number" ]] ;;
    PIPE) [[ $3 == 0 || $3 == 130 ]] ;;
    *) [[ $3 == 0 || $3 == 130 ]] || { [[ $3 == "$number" ]] && { [[ $1 == export ]] || [[ ! -s $scratch/err ]]; }; } ;;
    esac
}

random_delay() { # SECONDS: from 0 to 1.2 times as many
    awk -v r=$((RANDOM * 32768 + RANDOM)) -v whole="$1" 'BEGIN { printf "%.4f", 1.2 * whole * r / 1073741824 }'
}

check_leftovers() { # KIND
    local left
    left=$(find "$scratch/work" "$scratch/tmp" "$scratch/home" -name '.tutti-*' -o -path "$scratch/tmp/*" ! -path "$scratch/tmp/ompi*" | head -n 3)
    [[ -z $left ]] || fail "$1: left over: ${left//$'\n'/ }"
}

# Repeats a work until it finishes: interrupts it up to `rounds` times in all.
finish_work() { # KIND SIGNAL SECONDS_OF_THE_WHOLE
    local kind=$1 signal=$2 delay tries=0
    rm -rf "$scratch/work"
    mkdir "$scratch/work"
    cd "$scratch/work" || exit 1
    [[ $kind == export ]] && mkdir run
    for (( ; ; )); do
        delay=
        ((kills < rounds && tries++ < 20)) && delay=$(random_delay "$3")
        choose_command "$kind"
        run_command "$signal" "$delay"
        [[ $kind == launch ]] && wait_for_processes "$kind"
        [[ $delay && $status != 0 ]] && ((kills++))
        is_right_status "$kind" "$signal" "$status" || {
            fail "$kind: status $status after ${delay:+SIG$signal after $delay s}: ${command[*]:1}"
            return
        }
        [[ $status == 0 ]] && break
    done
    result_of "$kind" >"$scratch/result"
    cmp -s "$scratch/result" "$scratch/expected.$kind" ||
        fail "$kind: another result: $(diff "$scratch/expected.$kind" "$scratch/result" | grep "^[<>]" | tr "\n" " ")"
    check_leftovers "$kind"
}

cd "$scratch/start" || exit 1
"$tutti" train "${training[@]}" -q -o "$scratch/trained" >/dev/null || exit 1
for kind in $kinds; do
    kills=$rounds
    : >"$scratch/expected.$kind"
    begin=$EPOCHREALTIME
    finish_work "$kind" KILL 0 >/dev/null
    seconds=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')
    failures=0
    result_of "$kind" >"$scratch/expected.$kind"
    [[ $status == 0 && -s $scratch/expected.$kind ]] || { fail "$kind: status $status without interruption"; continue; }
    for signal in $signals; do
        kills=0 works=0
        while ((kills < rounds && works++ < 20 * rounds)); do finish_work "$kind" "$signal" "$seconds"; done
        echo "$kind: $kills interruptions by SIG$signal of $works works, which take $seconds s; $failures failures so far (seed $seed)"
        ((kills == rounds)) || fail "$kind: SIG$signal: only $kills interruptions"
    done
    all_failures=$((${all_failures:-0} + failures))
done
((${all_failures:-failures} == 0))
