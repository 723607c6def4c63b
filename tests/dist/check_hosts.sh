#!/usr/bin/env bash
# Tests hosts.sh: its hosts differ in what separate machines differ in, and nothing of them is left behind.
#   check_hosts.sh MPI_PROBE
set -uo pipefail

probe=$1
hosts=$(dirname "${BASH_SOURCE[0]}")/hosts.sh
"$hosts" true || exit # 77 where hosts cannot be created
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# check WHAT EXPECTED ACTUAL
check() {
    [[ $3 == "$2" ]] && return
    printf 'FAILED  %s\nexpected: %s\nactual:   %s\n' "$1" "$2" "$3"
    [[ ! -e $work/log ]] || sed 's/^/    /' "$work/log" # of the last MPI program
    failed=1
}

# ranks_of COMMAND...: the lines of the ranks, sorted. Open MPI sometimes prints warnings of its own between them, for
# example if it cannot set the process group of a program that has just ended.
ranks_of() {
    "$@" >"$work/log" 2>&1
    grep '^rank' "$work/log" | sort
}

# ---- MPI ----
check 'ranks of one host share memory, those of others do not' \
    'rank 0 of 4 on h1: 0 of 2 on its node, first rank of the node 0
rank 1 of 4 on h1: 1 of 2 on its node, first rank of the node 0
rank 2 of 4 on h2: 0 of 2 on its node, first rank of the node 2
rank 3 of 4 on h2: 1 of 2 on its node, first rank of the node 2' \
    "$(ranks_of "$hosts" --ranks 2 mpirun -n 4 "$probe" nodes)"
check '--local starts ranks on this machine' "rank 0 of 2 on $(hostname): 0 of 2 on its node, first rank of the node 0" \
    "$(ranks_of "$hosts" --local mpirun -n 2 "$probe" nodes | head -n 1)"
# For the reader: a test does not depend on time.
for rate in '' 1gbit; do
    echo "${rate:-no} limit: $("$hosts" ${rate:+--rate $rate} mpirun -n 2 "$probe" bandwidth 25000000 2>&1)"
done

# ---- hosts ----
# shellcheck disable=SC2016 # expanded on the hosts
check 'host names, addresses and /dev/shm' \
    'h1 10.77.0.1/24 8.0M mine
h2 10.77.0.2/24 8.0M ' \
    "$("$hosts" --shm 8m sh -c 'touch /dev/shm/mine; for host in h1 h2; do $TUTTI_HOSTS_AGENT $host "
        echo \$(hostname) \$(ip -4 -br address show eth0 | awk \"{ print \\\$3 }\") \$(df -h --output=size /dev/shm | tail -n 1) \
            \"\$(ls /dev/shm)\""; done' 2>&1)"
# shellcheck disable=SC2016
check 'as with ssh, another host has a new environment' 'here  there ' \
    "$(SETTING=here "$hosts" sh -c 'printf "$SETTING "; $TUTTI_HOSTS_AGENT h2 "echo \" there \$SETTING\""' 2>&1)"
check 'a host can be cut off' 'DOWN' \
    "$("$hosts" sh -c 'ip -n h2 link set eth0 down; ip -n h2 -br link show eth0' 2>&1 | awk '{ print $2 }')"

# ---- errors ----
"$hosts" sh -c 'exit 5'
check 'status of the command' 5 $?
check 'a wrong rate' "hosts.sh: --rate 'fast': expected a rate such as 1gbit or 100mbit; see hosts.sh --help 2" \
    "$("$hosts" --rate fast true 2>&1) $?"
# shellcheck disable=SC2016
forbidden=(unshare --user --map-root-user sh -c 'echo 0 >/proc/sys/user/max_net_namespaces && exec "$0" true' "$hosts")
if unshare --user --map-root-user true 2>/dev/null; then
    message=$("${forbidden[@]}" 2>&1)
    check 'status where namespaces are forbidden' 77 $?
    check 'message where namespaces are forbidden' 'skipped: this machine does not allow namespaces: ' "${message%%unshare:*}"
fi

# Every process of the hosts has the write end of the pipe, which ends when the last one is gone.
mkfifo "$work/alive"
for signal in KILL TERM; do
    "$hosts" sh -c 'echo ready; sleep 1000' >"$work/alive" 2>/dev/null &
    exec 3<"$work/alive"
    read -r line <&3
    kill -s $signal $!
    check "after SIG$signal no process is left" 'ready 0' "$line $(timeout 20 cat <&3; echo $?)"
    exec 3<&-
    wait $! 2>/dev/null
done
exit $failed
