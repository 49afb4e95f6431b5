#!/usr/bin/env bash
# One Slurm cluster: slurm.sh FOLDER PORT NODE-PORT...; a node of this machine for each of those ports. Clients find it by
# SLURM_CONF=FOLDER/slurm.conf. See service.sh.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2
shift 2

need_packages slurmctld slurmctld
need_packages slurmd slurmd
need_packages sbatch slurm-client
need_packages munged munge
[ "$(id -u)" = 0 ] || cannot "slurmd of several nodes on one machine has to be run by root"
mkdir -p "$folder/munge" "$folder/state"
chmod 755 "$folder"

[ -e "$folder/munge/key" ] || (umask 077 && head -c 1024 /dev/urandom >"$folder/munge/key")
export SLURM_CONF=$folder/slurm.conf
cat >"$SLURM_CONF" <<CONF
ClusterName=ardea
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
SlurmctldPidFile=$folder/state/slurmctld.pid
SlurmdPidFile=$folder/state/slurmd.%n.pid
# Processes are followed from parent to child: not every machine lets a test make control groups.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=20
KillWait=5
SchedulerParameters=sched_min_interval=0,bf_interval=2,defer_batch
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=64
SlurmdParameters=config_overrides
JobRequeue=1
AccountingStorageType=accounting_storage/none
CONF
for node in "$@"; do
    echo "NodeName=n$node NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$node CPUs=64 RealMemory=16384" >>"$SLURM_CONF"
done
echo "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP" >>"$SLURM_CONF"

beside "$folder" munged --foreground --force --socket="$folder/munge/socket" --key-file="$folder/munge/key" \
    --pid-file="$folder/munge/pid" --log-file="$folder/munge/log" --seed-file="$folder/munge/seed" --num-threads=2
until munge -n -S "$folder/munge/socket" >/dev/null 2>&1; do
    kill -0 "${COMPANIONS%% *}" 2>/dev/null || { tail -n 15 "$folder/log" "$folder/munge/log" >&2 || true; exit 1; }
    sleep 0.05
done
for node in "$@"; do beside "$folder" slurmd -D -N "n$node" -f "$SLURM_CONF"; done

ready() { [ "$(sinfo -h -N -t idle,mixed,allocated -o %N | sort -u | wc -l)" = $# ]; }
nodes=("$@")
all_ready() { ready "${nodes[@]}"; }
serve "$folder" all_ready slurmctld -D -f "$SLURM_CONF"
