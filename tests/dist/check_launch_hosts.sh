#!/usr/bin/env bash
# Tests `tutti launch` on two hosts with two slots each: a host is gone and comes back, a rank of the other host is
# killed, SIGTERM, and launch itself is killed. Run by hosts.sh.
#   check_launch_hosts.sh TUTTI
tutti=$1
# shellcheck source=tests/dist/launch_functions.sh
. "$(dirname "${BASH_SOURCE[0]}")/launch_functions.sh"

# As ssh does, this agent fails if the network does not reach the host.
cat >agent <<TEXT
#!/bin/sh
case \$(ip -n "\$1" -br link show eth0) in *DOWN*) echo "\$1: no route to host" >&2; exit 255 ;; esac
exec $TUTTI_HOSTS_AGENT "\$@"
TEXT
chmod +x agent
export OMPI_MCA_plm_rsh_agent=$PWD/agent
unset OMPI_MCA_orte_default_hostfile # --hosts has them
sed 's/$/ # a comment/' "$TUTTI_HOSTS_FILE" >hosts

# The process id of a rank that runs on h2, a child of Open MPI's daemon.
rank_on_h2() { pgrep -x -P "$(pgrep -x orted | head -n 1)" tutti | head -n 1; }

# wait_for_line FILE REGEX PID
wait_for_line() {
    until grep -qE "$2" "$1"; do
        kill -0 "$3" 2>/dev/null || return
        sleep 0.05
    done
}

# h2 is cut off: the run continues on h1. Then h2 answers again, and a rank is killed: the run continues on both.
a_host_is_gone() {
    local pid
    "$tutti" launch --hosts hosts -- "${training[@]}" --steps 1000 --collective-timeout 5 --out gone >gone.out 2>gone.err &
    pid=$!
    wait_for_checkpoint gone 100 "$pid" || { complain 'the run ended before a host was cut off' gone.err; return; }
    ip -n h2 link set eth0 down
    wait_for_line gone.err 'restart 1 of 3' "$pid" || complain 'no restart after a host was cut off' gone.err
    expect_line 'h2 is gone' "^tutti: notice: launch: host 'h2' does not answer$" gone.err
    expect_line 'h2 is gone' "launch: a process was lost; restart 1 of 3: resuming 'gone', with 2 processes$" gone.err
    ip -n h2 link set eth0 up
    wait_for_line gone.err '2 processes \(Open MPI' "$pid" || complain 'the restart did not begin' gone.err
    wait_for_line gone.err '^step' "$pid"
    kill -KILL "$(find_rank 1 "$pid")"
    wait "$pid"
    expect_status 'h2 is back' 0 $? gone.err
    expect_line 'h2 is back' "restart 2 of 3: resuming 'gone', with 4 processes$" gone.err
    digest=$long_digest expect_digest 'h2 is back' gone.out
}

a_rank_of_the_other_host_is_killed() {
    local pid
    "$tutti" launch --hosts hosts -- "${training[@]}" --out killed >killed.out 2>killed.err &
    pid=$!
    wait_for_checkpoint killed 100 "$pid" || { complain 'the run ended before a rank was killed' killed.err; return; }
    kill -KILL "$(rank_on_h2)"
    wait "$pid"
    expect_status 'a rank of h2 was killed' 0 $? killed.err
    expect_line 'a rank of h2 was killed' "launch: a process was killed by signal 9 .*; restart 1 of 3: resuming 'killed', with 4 processes$" killed.err
    expect_digest 'a rank of h2 was killed' killed.out
}

launch_gets_sigterm() {
    local pid
    "$tutti" launch --hosts hosts -- "${training[@]}" --out stopped >stopped.out 2>stopped.err &
    pid=$!
    wait_for_checkpoint stopped 100 "$pid" || { complain 'the run ended before SIGTERM' stopped.err; return; }
    kill -TERM "$pid"
    wait "$pid"
    expect_status 'SIGTERM' 130 $? stopped.err
    "$tutti" launch -n 2 --hosts hosts -- train stopped --resume >resumed.out 2>resumed.err
    expect_status 'resuming after SIGTERM' 0 $? resumed.err
    expect_digest 'resuming after SIGTERM' resumed.out
}

launch_is_killed() {
    local pid
    TUTTI_TEST_MARK=left "$tutti" launch --hosts hosts -- "${training[@]}" --steps 100000 --out left >left.out 2>left.err &
    pid=$!
    wait_for_checkpoint left 100 "$pid" || { complain 'the run ended before launch was killed' left.err; return; }
    kill -KILL "$pid"
    wait_until_gone TUTTI_TEST_MARK=left || complain 'processes are left after launch was killed' left.err
    [[ -z $(pgrep -x 'orted|mpirun') ]] || complain "Open MPI is left after launch was killed: $(pgrep -xa 'orted|mpirun')" left.err
}

# No host is left: mpirun notices it, sooner than by default, and launch ends.
all_hosts_are_gone() {
    local pid
    echo 'h2 slots=2' >other
    OMPI_MCA_oob_tcp_keepalive_time=2 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3 "$tutti" launch --hosts other -- "${training[@]}" --steps 100000 --out alone \
        >alone.out 2>alone.err &
    pid=$!
    wait_for_checkpoint alone 100 "$pid" || { complain 'the run ended before its host was cut off' alone.err; return; }
    ip -n h2 link set eth0 down
    wait "$pid"
    expect_status 'no host answers' 4 $? alone.err
    expect_line 'no host answers' "^tutti: launch: a process was lost, and no host answers; resume with 'tutti launch … -- train alone --resume'$" alone.err
    ip -n h2 link set eth0 up
}

# With --invariant train refuses three processes, which h1 has slots for: the run continues with two.
three_processes_are_refused() {
    local pid
    sed 's/^h1 slots=2/h1 slots=3/; s/^h2 slots=2/h2 slots=1/' hosts >uneven
    "$tutti" launch --hosts uneven -- "${training[@]}" --out uneven.run >uneven.out 2>uneven.err &
    pid=$!
    wait_for_checkpoint uneven.run 50 "$pid" || { complain 'the run ended before its host was cut off' uneven.err; return; }
    ip -n h2 link set eth0 down
    kill -KILL "$(rank_on_h2)"
    wait "$pid"
    expect_status 'three processes are refused' 0 $? uneven.err
    expect_line 'three processes are refused' '^tutti: invariant 4 on 3 devices: expected' uneven.err
    expect_line 'three processes are refused' "restart 2 of 3: resuming 'uneven.run', with 2 processes$" uneven.err
    expect_digest 'three processes are refused' uneven.out
    ip -n h2 link set eth0 up
}

"$tutti" "${training[@]}" --steps 1000 --out long >long.out 2>long.err
long_digest=$(digest_of long.out)
"$tutti" "${training[@]}" --out undisturbed >undisturbed.out 2>undisturbed.err
digest=$(digest_of undisturbed.out)
a_rank_of_the_other_host_is_killed
launch_gets_sigterm
launch_is_killed
all_hosts_are_gone
three_processes_are_refused
a_host_is_gone
exit $failed
