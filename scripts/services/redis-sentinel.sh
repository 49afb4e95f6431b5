#!/usr/bin/env bash
# A Redis sentinel, the primary server `main` that it watches, and a replica: redis-sentinel.sh FOLDER PORT PEER. See service.sh.
# PORT is the sentinel's, PEER the primary's; the replica has a port of its own.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2 peer=$3

need_packages redis-server redis-server
need_packages redis-cli redis-tools
mkdir -p "$folder"/{primary,replica}
third=$(free_port "$peer")

node() {
    local place=$1 at=$2
    shift 2
    beside "$place" redis-server --bind "$ADDRESS" --port "$at" --dir "$place" --appendonly yes --appendfsync always \
        --save '' --repl-diskless-sync-delay 0 --daemonize no --protected-mode no "$@"
}
node "$folder/primary" "$peer"
wait_for redis-cli -h "$ADDRESS" -p "$peer" ping
node "$folder/replica" "$third" --replicaof "$ADDRESS $peer"
online() { redis-cli -h "$ADDRESS" -p "$peer" info replication | grep -q state=online; }
wait_for online

cat >"$folder/sentinel.conf" <<CONFIG
bind $ADDRESS
port $port
dir $folder
protected-mode no
sentinel monitor main $ADDRESS $peer 1
sentinel down-after-milliseconds main 10000
sentinel failover-timeout main 10000
CONFIG

ready() { redis-cli -h "$ADDRESS" -p "$port" sentinel replicas main | grep -q "^$third\$"; }

serve "$folder" ready redis-server "$folder/sentinel.conf" --sentinel
