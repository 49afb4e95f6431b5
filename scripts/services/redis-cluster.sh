#!/usr/bin/env bash
# A Redis cluster of three nodes, and a replica of the first: redis-cluster.sh FOLDER PORT PEER. See service.sh.
# The first two listen at these ports, the third and the replica at ones of their own. The replica's is in the file replica.port.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2 peer=$3

need_packages redis-server redis-server
need_packages redis-cli redis-tools
third=$(cat "$folder/third.port" 2>/dev/null || free_port "$peer")
replica=$(cat "$folder/replica.port" 2>/dev/null || free_port "$third")
mkdir -p "$folder"/{1,2,3,4}
echo "$third" >"$folder/third.port"
echo "$replica" >"$folder/replica.port"

# options NODE PORT: sets the options of a node.
options() {
    options=(--bind "$ADDRESS" --port "$2" --dir "$folder/$1" --cluster-enabled yes --cluster-config-file nodes.conf
        --cluster-node-timeout 2000 --appendonly yes --appendfsync always --save '' --repl-diskless-sync-delay 0
        --daemonize no --protected-mode no)
}
options 2 "$peer"
beside "$folder/2" redis-server "${options[@]}"
options 3 "$third"
beside "$folder/3" redis-server "${options[@]}"
options 4 "$replica"
beside "$folder/4" redis-server "${options[@]}"
options 1 "$port"

ready() {
    local at
    for at in "$port" "$peer" "$third" "$replica"; do
        redis-cli -h "$ADDRESS" -p "$at" ping | grep -q PONG || return 1
    done
    if [ ! -e "$folder/made" ]; then
        redis-cli --cluster create "$ADDRESS:$port" "$ADDRESS:$peer" "$ADDRESS:$third" --cluster-yes >>"$folder/log" || return 1
        touch "$folder/made"
    fi
    if [ ! -e "$folder/joined" ]; then
        first=$(redis-cli -h "$ADDRESS" -p "$port" cluster myid)
        redis-cli --cluster add-node "$ADDRESS:$replica" "$ADDRESS:$port" --cluster-slave --cluster-master-id "$first" >>"$folder/log" ||
            return 1
        touch "$folder/joined"
    fi
    for at in "$port" "$peer" "$third"; do
        redis-cli -h "$ADDRESS" -p "$at" cluster info | grep -q cluster_state:ok || return 1
        [ "$(redis-cli -h "$ADDRESS" -p "$at" cluster nodes | grep -c ' slave \|,slave ')" = 1 ] || return 1
    done
}

serve "$folder" ready redis-server "${options[@]}"
