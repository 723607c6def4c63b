#!/usr/bin/env bash
# Kills (SIGKILL) or stops (SIGSTOP) one of four ranks of a training at random moments after its start, started by plain
# mpirun. In every round:
#   - every other rank prints one line that names the lost rank, its host, device and operation, and the last steps,
#   - they all end with status 4, or by a signal of mpirun if the cores are so busy that it comes first; mpirun ends, and
#     no process is left,
#   - the run folder resumes to the bits of an undisturbed run: no checkpoint is torn.
# Prints how long after the signal the last rank ended. Run by hosts.sh --local.
#   check_lost_ranks.sh TUTTI ROUNDS [SIGNAL...]      ROUNDS of each signal, by default KILL and STOP
set -uo pipefail

tutti=$1 rounds=$2
shift 2
signals=("$@")
((${#signals[@]})) || signals=(KILL STOP)
deadline=2 # of a collective, in seconds
hang=60    # seconds after which a process hangs
work=$TMPDIR/lost
mkdir "$work"
host=$(hostname)
train=(train mlp --data generated --batch 32 --steps 80 --checkpoint-every 10 --validation 0)

# Runs a rank and records its status. mpirun sends signals to this shell, too, which must survive them.
cat >"$work/rank" <<'TEXT'
#!/usr/bin/env bash
trap : TERM HUP
echo $$ >"$RECORDS/shell.$OMPI_COMM_WORLD_RANK"
"$@"
status=$?
echo "$status $EPOCHREALTIME" >"$RECORDS/end.$OMPI_COMM_WORLD_RANK"
((status != 137)) || kill -KILL $$
exit $status
TEXT
chmod +x "$work/rank"

complain() { problems+="$*"$'\n'; }

# undisturbed: trains without a signal. Sets `digest`, and `duration`, the seconds from the first step to the end.
undisturbed() {
    local begun
    mpirun -n 4 "$tutti" "${train[@]}" --out "$work/undisturbed" >"$work/undisturbed.log" 2>&1 &
    wait_for_begin "$work/undisturbed.log" $! || exit
    begun=$EPOCHREALTIME
    wait $! || { cat "$work/undisturbed.log"; exit 1; }
    duration=$(since "$begun")
    digest=$(digest_in "$work/undisturbed.log")
}

since() { awk -v a="$1" -v b="${2:-$EPOCHREALTIME}" 'BEGIN { print b - a }'; }
digest_in() { sed -n 's/^digest *//p' "$1"; }

wait_for_begin() { # log, mpirun's process
    until grep -qs '^run folder' "$1"; do
        kill -0 "$2" 2>/dev/null || { echo "FAILED  mpirun ended before the first step"; cat "$1"; return 1; }
        sleep 0.01
    done
}

# lines_of RANK: what a rank has printed about the failure.
lines_of() { grep "^tutti: rank $1 on host $host: " "$records/log" | sed 's/^tutti: rank [0-9]* on host [^:]*: //'; }

check_survivor() { # rank, signal, victim
    local lines pattern status='' end='' place='(after step [0-9]+|before its first step)'
    case $2 in
    KILL) pattern="rank $3 \(host $host, device cpu:0\.$3\) ended unexpectedly $place, while .*; last steps: .*" ;;
    STOP) pattern="rank $3 \(host $host, device cpu:0\.$3\) has not answered for .* \(last heard $place, .*\): the process \
is stopped or its host is unreachable; (it is needed in collective [0-9]+, [A-Za-z_]+.*|the others have finished); last steps: .*" ;;
    esac
    lines=$(lines_of "$1")
    [[ $lines =~ ^$pattern$ && $lines != *$'\n'* ]] || complain "rank $1 did not print one line that names rank $3: '$lines'"
    [[ ! -e $records/end.$1 ]] || read -r status end <"$records/end.$1"
    case $status in
    4) times+=("$(since "$sent" "$end")") ;;
    143 | '') ended_by_mpirun=$((ended_by_mpirun + 1)) ;;
    *) complain "rank $1 ended with status $status, expected 4" ;;
    esac
}

check_resume() { # round
    local command=("$tutti" train "$records/run" --resume --devices cpu:0/4)
    (($1 % 2)) || command=(mpirun -n 4 "$tutti" train "$records/run" --resume --devices all)
    "${command[@]}" >"$records/resume.log" 2>&1 || complain "the run does not resume"
    [[ $(digest_in "$records/resume.log") == "$digest" ]] || complain "the resumed run has another digest"
    ! grep -i 'checkpoint' "$records/resume.log" || complain "a checkpoint is torn"
}

# True if the signal came so late that the other ranks had ended successfully.
had_finished() { # victim
    local rank
    for rank in 0 1 2 3; do
        ((rank == $1)) || [[ -e $records/end.$rank && $(<"$records/end.$rank") == 0\ * ]] || return
    done
}

# round SIGNAL NUMBER: fails if the training ended before it could be disturbed.
round() {
    local victim=$((RANDOM % 4)) delay mpirun status rank pid i times=()
    records=$work/$1-$2 problems=''
    mkdir "$records"
    RECORDS=$records timeout --signal=KILL $hang mpirun -x RECORDS -n 4 "$work/rank" "$tutti" "${train[@]}" \
        --collective-timeout $deadline --out "$records/run" >"$records/log" 2>&1 </dev/null &
    mpirun=$!
    wait_for_begin "$records/log" $mpirun || exit
    delay=$(awk -v seed=$RANDOM$RANDOM -v most="$duration" 'BEGIN { srand(seed); print rand() * 0.9 * most }')
    sleep "$delay"
    pid=$(pgrep -P "$(<"$records/shell.$victim")")
    sent=$EPOCHREALTIME
    kill -s "$1" ${pid:+"$pid"} 2>/dev/null || { wait $mpirun; rm -r "$records"; return 1; }
    wait $mpirun 2>/dev/null
    status=$?
    for ((i = 0; i < 100; i++)); do pgrep -f "$records/run" >/dev/null || break; sleep 0.1; done
    ((i < 100)) || complain "processes are left: $(pgrep -af "$records/run")"
    if had_finished $victim; then rm -r "$records"; return 1; fi
    # That of the first rank that ended, as far as mpirun noticed.
    ((status == 4)) || [[ $1 == KILL && $status == 137 ]] || complain "mpirun's status is $status, expected 4, or 137 after SIGKILL"
    for rank in 0 1 2 3; do ((rank == victim)) || check_survivor $rank "$1" $victim; done
    check_resume "$2"
    slowest=$(printf '%s\n' "$slowest" "${times[@]}" | sort -g | tail -n 1)
    if [[ $problems ]]; then
        printf 'FAILED  SIG%s to rank %d after %.3f s: %s' "$1" $victim "$delay" "$problems"
        sed 's/^/    /' "$records/log" "$records/resume.log"
        head "$records"/end.*
        failed=$((failed + 1))
    fi
    rm -r "$records"
}

failed=0 duration='' digest=''
undisturbed
for signal in "${signals[@]}"; do
    slowest=0 repeated=0 ended_by_mpirun=0
    for ((number = 1; number <= rounds; number++)); do
        until round $signal "$number"; do ((++repeated < 10 + rounds)) || { echo "FAILED  the training ends too early"; exit 1; }; done
    done
    printf 'SIG%s: %d rounds; the last rank ended at most %.1f s after the signal (deadline %d s); mpirun ended %d ranks\n' \
        $signal "$rounds" "$slowest" $deadline $ended_by_mpirun
done
((failed == 0)) || { echo "$failed rounds failed"; exit 1; }
