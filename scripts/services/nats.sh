#!/usr/bin/env bash
# One NATS server with JetStream, which has each message in its file before it confirms it: nats.sh FOLDER PORT MONITORING-PORT.
# See service.sh.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2 monitoring=$3

need_packages nats-server nats-server
need_packages curl curl
mkdir -p "$folder"

ready() { curl -fsS -o /dev/null "http://127.0.0.1:$monitoring/healthz"; }

serve "$folder" ready nats-server -a "$ADDRESS" -p "$port" -m "$monitoring" -js -sd "$folder/data"
