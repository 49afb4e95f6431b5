#!/usr/bin/env bash
# One Redis server, which has each command in its file before it answers: redis.sh FOLDER PORT. See service.sh.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2

need_packages redis-server redis-server
need_packages redis-cli redis-tools
mkdir -p "$folder"

ready() { redis-cli -h "$ADDRESS" -p "$port" ping | grep -q PONG; }

serve "$folder" ready redis-server --bind "$ADDRESS" --port "$port" --dir "$folder" \
    --appendonly yes --appendfsync always --save '' --daemonize no --protected-mode no
