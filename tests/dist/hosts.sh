#!/usr/bin/env bash
# Runs a command on a small cluster that exists only for it: hosts of one machine that, as separate machines do, have
# each a host name, a network interface with an IP address and a limited rate, and a /dev/shm of their own. The hosts
# share the file system, as on a cluster with a network file system.
#
# A host is a set of Linux namespaces (network, UTS, IPC, mount). All hosts live in one PID and mount namespace of
# their own, in which a temporary file system covers /run. When the command or this script ends, for whatever reason
# (also SIGKILL), the kernel ends all processes of the cluster and removes its network, its mounts and its files.
# Nothing of the machine is changed, and clusters can run at the same time.
#
# The command runs on the first host, h1. Plain `mpirun -n 4 PROGRAM` places ranks on all hosts: the environment tells
# Open MPI the hosts, how to start programs on them and which network to use. See README.md.
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: hosts.sh [--hosts N] [--ranks K] [--rate RATE] [--shm SIZE] COMMAND [ARGUMENT...]
       hosts.sh --local COMMAND [ARGUMENT...]

  --hosts N    number of hosts: h1 to hN (default 2)
  --ranks K    slots of each host: mpirun -n N*K starts K ranks on each (default 1)
  --rate RATE  limit what each host sends, in units of tc: 1gbit, 100mbit (default: no limit)
  --shm SIZE   size of each host's /dev/shm: 64m, 2g (default: half of the machine's memory)
  --local      no hosts: the command runs on this machine, also where namespaces are not allowed

The status is that of the command, or 77 if this machine cannot create the hosts; stderr then says why.
TEXT
}

fail_usage() { echo "hosts.sh: $*; see hosts.sh --help" >&2; exit 2; }
skip() { echo "skipped: $*" >&2; exit 77; }

# expect OPTION VALUE PATTERN WHAT
expect() { [[ $2 =~ ^($3)$ ]] || fail_usage "$1 '$2': expected $4"; }

PATH=$PATH:/usr/sbin:/sbin # users' PATH may lack tc
hosts=2 ranks=1 rate='' shm=50% mode=outside
while (($#)); do
    case $1 in
    --inside) mode=inside ;; # set by the script itself
    --local) mode=local ;;
    --hosts | --ranks | --rate | --shm)
        (($# > 1)) || fail_usage "$1: expected a value"
        case $1 in
        --hosts) expect "$1" "$2" '[1-9][0-9]?' 'a number from 1 to 99'; hosts=$2 ;;
        --ranks) expect "$1" "$2" '[1-9][0-9]?' 'a number from 1 to 99'; ranks=$2 ;;
        --rate) expect "$1" "$2" '[1-9][0-9]*[kmg]bit' 'a rate such as 1gbit or 100mbit'; rate=$2 ;;
        --shm) expect "$1" "$2" '[1-9][0-9]*[kmg%]' 'a size such as 64m or 2g'; shm=$2 ;;
        esac
        shift ;;
    -h | --help) usage; exit 0 ;;
    -*) fail_usage "unknown option '$1'" ;;
    *) break ;;
    esac
    shift
done
(($#)) || fail_usage "expected a command"

# ---- outside: enter the namespaces ----

enter_cluster() { # option... command...
    local tool message child status=0
    local unshare=(unshare --mount --net --uts --ipc --pid --fork --kill-child --mount-proc)
    for tool in unshare nsenter setpriv ip tc mount hostname; do
        command -v "$tool" >/dev/null || skip "$tool is not installed (Debian: apt install util-linux mount iproute2 hostname)"
    done
    if ! message=$("${unshare[@]}" true 2>&1); then
        # Without root, a user namespace in which the user is root.
        unshare+=(--map-root-user)
        "${unshare[@]}" true 2>/dev/null ||
            skip "this machine does not allow namespaces: $message (needs root, or unprivileged user namespaces)"
    fi
    # In the background, so that a signal ends the cluster at once. --pdeathsig: so does SIGKILL. Without --default-signal
    # the command would ignore SIGINT, as the shell's background processes do.
    env --default-signal=INT,QUIT setpriv --pdeathsig KILL "${unshare[@]}" "$BASH" "${BASH_SOURCE[0]}" --inside "$@" <&0 &
    child=$!
    trap 'kill -KILL "$child"; trap - TERM; kill -TERM $$' TERM INT HUP
    wait "$child" || status=$?
    exit "$status"
}

# ---- inside: create the hosts, run the command ----

cluster=/run/cluster # on the temporary file system

# need WHAT COMMAND...: runs a command without which this machine has no hosts.
need() {
    local what=$1 message
    shift
    message=$("$@" 2>&1) || skip "this machine does not allow $what: $message"
}

# Writes the program that runs a command on a host as ssh does: in the home folder, with a new environment. Only
# settings of the tests (register.cmake) are kept.
write_agent() {
    cat >$cluster/agent <<TEXT
#!/bin/sh
# agent HOST COMMAND...
host=\$1
shift
command=\$*
read -r holder <$cluster/holders/"\$host" || exit 255
set -- HOME="\$HOME" USER="\${USER:-root}" PATH="\$PATH"
for name in ASAN_OPTIONS LSAN_OPTIONS UBSAN_OPTIONS TSAN_OPTIONS OMP_WAIT_POLICY; do
    if value=\$(printenv \$name); then set -- "\$@" "\$name=\$value"; fi
done
exec nsenter --target "\$holder" --net --uts --ipc --mount -- env -i "\$@" sh -c "cd; \$command"
TEXT
    chmod +x $cluster/agent
}

# Creates the namespaces of a host. They exist as long as the process that holds them.
create_host() { # name address
    local name=$1 address=$2 holder
    # shellcheck disable=SC2016 # expanded by the shell of the host
    unshare --net --uts --ipc --mount --propagation slave sh -c 'hostname "$0" && mount -t tmpfs -o "size=$1" tmpfs /dev/shm &&
        ip link set lo up && echo $$ >'$cluster'/holders/"$0.new" && exec sleep infinity' "$name" "$shm" \
        </dev/null 2>$cluster/error &
    holder=$!
    while [[ ! -s $cluster/holders/$name.new ]]; do
        kill -0 $holder 2>/dev/null || skip "this machine does not allow hosts: $(<$cluster/error)"
        sleep 0.01
    done
    mv $cluster/holders/"$name.new" $cluster/holders/"$name"
    ip netns attach "$name" $holder # for ip -n NAME
    need "virtual Ethernet" ip link add "$name" type veth peer name eth0 netns $holder
    ip link set "$name" master switch up
    ip -n "$name" address add "$address/24" dev eth0
    ip -n "$name" link set eth0 up
    # The burst must exceed the largest segment that TCP passes down, 64 KiB.
    [[ -z $rate ]] || need "rate limits" tc -n "$name" qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 20ms
    echo "$address $name" >>$cluster/hosts
    echo "$name slots=$ranks" >>$cluster/hostfile
}

create_cluster() {
    local i
    mount --make-rshared / # within the cluster: all hosts see the names that ip netns attaches
    need "temporary file systems" mount -t tmpfs -o mode=755 tmpfs /run
    mkdir -p $cluster/holders $cluster/tmp
    chmod 1777 $cluster/tmp
    echo "127.0.0.1 localhost" >$cluster/hosts
    write_agent
    ip link set lo up
    need "network bridges" ip link add switch type bridge
    ip link set switch up
    mount --bind $cluster/hosts /etc/hosts
    for ((i = 1; i <= hosts; i++)); do create_host "h$i" "10.77.0.$i"; done
}

# Settings with which plain `mpirun` uses all hosts.
export_hosts() {
    export TUTTI_HOSTS_AGENT=$cluster/agent TUTTI_HOSTS_FILE=$cluster/hostfile TMPDIR=$cluster/tmp
    export OMPI_MCA_orte_default_hostfile=$cluster/hostfile
    export OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_agent=$cluster/agent
    export OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0
}

export_mpi_settings() {
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_tmpdir_base=$TMPDIR
    # Few cores for many ranks. Ranks that wait must yield: with four ranks on two cores an all-reduce takes 0.2 ms
    # instead of 50 ms.
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1
    # TCP between hosts, shared memory within one. UCX and libfabric would find out that hosts are one machine.
    export OMPI_MCA_pml=ob1 OMPI_MCA_btl=tcp,vader,self OMPI_MCA_osc=^ucx
}

run_command() { # command...
    local first
    read -r first <$cluster/holders/h1
    # shellcheck disable=SC2016
    nsenter --target "$first" --net --uts --ipc --mount -- sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
}

# ---- without hosts ----

run_locally() { # command...
    TMPDIR=$(mktemp -d)
    export TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
    export_mpi_settings
    "$@"
}

case $mode in
outside)
    options=(--hosts "$hosts" --ranks "$ranks" --shm "$shm")
    [[ -z $rate ]] || options+=(--rate "$rate")
    enter_cluster "${options[@]}" "$@"
    ;;
inside)
    create_cluster
    export_hosts
    export_mpi_settings
    run_command "$@"
    ;;
local) run_locally "$@" ;;
esac
