#!/usr/bin/env bash
# Cuts one of two hosts off during a training: the ranks of each host name a rank of the other one and end with status 4,
# and the run resumes. mpirun itself does not notice, and has to be ended. Run by hosts.sh, with two ranks on each host.
#   check_lost_host.sh TUTTI
set -uo pipefail

tutti=$1 work=$TMPDIR/lost
mkdir "$work"
run=(train mlp --data generated --batch 32 --steps 80 --checkpoint-every 10 --validation 0)
failed=0

complain() {
    echo "FAILED  $*"
    failed=1
}
digest_in() { sed -n 's/^digest *//p' "$1"; }

# Output of a host that is cut off does not reach mpirun.
cat >"$work/rank" <<'TEXT'
#!/usr/bin/env bash
trap : TERM HUP
"$@" >"$RECORDS/log.$OMPI_COMM_WORLD_RANK" 2>&1
echo $? >"$RECORDS/status.$OMPI_COMM_WORLD_RANK"
TEXT
chmod +x "$work/rank"

mpirun -n 4 "$tutti" "${run[@]}" --out "$work/undisturbed" >"$work/undisturbed.log" 2>&1 || { cat "$work/undisturbed.log"; exit 1; }

RECORDS=$work mpirun -x RECORDS -n 4 "$work/rank" "$tutti" "${run[@]}" --collective-timeout 2 --out "$work/run" >"$work/mpirun.log" 2>&1 &
mpirun=$!
until grep -qs '^step' "$work/log.0"; do
    kill -0 $mpirun 2>/dev/null || { cat "$work/mpirun.log" "$work"/log.*; exit 1; }
    sleep 0.01
done
ip -n h2 link set eth0 down
for rank in 0 1 2 3; do
    for ((i = 0; i < 600; i++)); do [[ ! -s $work/status.$rank ]] || break; sleep 0.1; done
    [[ $(<"$work/status.$rank") == 4 ]] || complain "rank $rank has not ended with status 4"
    case $rank in
    0 | 1) own=h1 lost='rank [23] \(host h2,' ;;
    2 | 3) own=h2 lost='rank 0 \(host h1,' ;;
    esac
    grep -qE "^tutti: rank $rank on host $own: $lost device [^)]*\) has not answered for .*: the process is stopped or its host is \
unreachable; .*it is needed in collective [0-9]+, .*; last steps: " "$work/log.$rank" || complain "rank $rank does not name a rank of the other host"
done
kill -KILL $mpirun
wait $mpirun 2>/dev/null
ip -n h2 link set eth0 up
mpirun -n 4 "$tutti" train "$work/run" --resume >"$work/resume.log" 2>&1 || complain "the run does not resume"
[[ $(digest_in "$work/resume.log") == "$(digest_in "$work/undisturbed.log")" ]] || complain "the resumed run has another digest"
((failed == 0)) || tail -n 20 "$work"/*.log "$work"/log.*
exit $failed
