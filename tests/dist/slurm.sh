#!/usr/bin/env bash
# Runs a command on hosts on which Slurm runs:
#   hosts.sh [--hosts N] [--ranks K] slurm.sh [--kill-wait SECONDS] COMMAND [ARGUMENT...]
# A real Slurm: munge and slurmctld on h1 and a slurmd on every host, which offers K CPUs. The command can call sbatch,
# srun, scancel. Configuration, state and logs are in the temporary file system of hosts.sh, and all daemons end with
# the command. If a daemon does not start, its log is printed. The status is that of the command, or 77 if Slurm is not
# installed.
set -euo pipefail

kill_wait=2 # seconds between SIGTERM and SIGKILL; Slurm's default is 30
if [[ ${1:-} == --kill-wait ]]; then
    kill_wait=${2:-}
    [[ $kill_wait =~ ^[0-9]+$ ]] || { echo "slurm.sh: --kill-wait '$kill_wait': expected a number of seconds" >&2; exit 2; }
    shift 2
fi
(($#)) || { echo 'slurm.sh: expected a command' >&2; exit 2; }
[[ -n ${TUTTI_HOSTS_AGENT:-} && -n ${TUTTI_HOSTS_FILE:-} ]] || { echo 'slurm.sh: run this by hosts.sh' >&2; exit 2; }
for tool in munged slurmctld slurmd srun; do
    command -v $tool >/dev/null || { echo "skipped: $tool is not installed (Debian: apt install munge slurm-wlm)" >&2; exit 77; }
done
# Its daemons call setgroups.
[[ $(</proc/self/setgroups) == allow ]] || { echo 'skipped: Slurm needs root, not only a user namespace' >&2; exit 77; }

slurm=$TMPDIR/slurm
mkdir -p "$slurm"/{munge,state,log}
mapfile -t names < <(cut -d' ' -f1 "$TUTTI_HOSTS_FILE")

fail() {
    tail -n 20 "$slurm"/log/* >&2
    echo "slurm.sh: $*" >&2
    exit 1
}

start_munge() {
    (umask 077 && head -c 1024 /dev/urandom >"$slurm/munge/key")
    # --force: the folder may belong to another user outside of this user namespace.
    munged --force --key-file="$slurm/munge/key" --socket="$slurm/munge/socket" --pid-file="$slurm/munge/pid" \
        --seed-file="$slurm/munge/seed" --log-file="$slurm/log/munged" 2>"$slurm/log/munged-start" || fail 'munged did not start'
}

# Nodes are the hosts. They share a file system, so their folders have the node's name (%n).
write_configuration() {
    local name cpus address
    cat <<TEXT
ClusterName=test
SlurmctldHost=${names[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# A requeued job starts after cred_expire; the default is 120 seconds.
AuthInfo=socket=$slurm/munge/socket,cred_expire=20
SchedulerParameters=sched_interval=2
CredType=cred/munge
StateSaveLocation=$slurm/state
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmctldLogFile=$slurm/log/slurmctld
SlurmdSpoolDir=$slurm/spool-%n
SlurmdPidFile=$slurm/slurmd-%n.pid
SlurmdLogFile=$slurm/log/slurmd-%n
TmpFS=$slurm/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
# More CPUs than the machine has are allowed.
SlurmdParameters=config_overrides
KillWait=$kill_wait
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
TEXT
    while read -r name cpus; do
        address=$(awk -v name="$name" '$2 == name { print $1 }' /etc/hosts)
        echo "NodeName=$name NodeAddr=$address CPUs=${cpus#slots=} State=UNKNOWN"
    done <"$TUTTI_HOSTS_FILE"
}

start_daemons() {
    local name
    slurmctld -i || fail 'slurmctld did not start'
    for name in "${names[@]}"; do
        mkdir "$slurm/spool-$name" "$slurm/tmp-$name"
        "$TUTTI_HOSTS_AGENT" "$name" "slurmd -f '$SLURM_CONF' -N $name" || fail "slurmd did not start on $name"
    done
}

wait_for_nodes() {
    local deadline=$((SECONDS + 60))
    until [[ $(sinfo --noheader --format=%T 2>/dev/null) == idle ]]; do
        ((SECONDS < deadline)) || fail "nodes are not idle after 60 s: $(sinfo 2>&1)"
        sleep 0.1
    done
}

start_munge
export SLURM_CONF=$slurm/slurm.conf
write_configuration >"$SLURM_CONF"
start_daemons
wait_for_nodes
# The default is tree, whose fence does not always wait for all ranks if the cores are busy: 13 of 1,200 runs of srun
# ended with a segmentation fault in MPI_Init, where a rank received a message before it was ready. With ring 1 of 1,560
# runs failed.
export SLURM_PMIX_FENCE=ring
# In an allocation mpirun finds the hosts itself and starts its daemons by srun.
unset OMPI_MCA_plm OMPI_MCA_plm_rsh_agent OMPI_MCA_orte_default_hostfile
"$@"
