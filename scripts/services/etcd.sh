#!/usr/bin/env bash
# One etcd server: etcd.sh FOLDER PORT PEER-PORT. See service.sh.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2 peer=$3

need_packages etcd etcd-server
need_packages etcdctl etcd-client
mkdir -p "$folder"

ready() { ETCDCTL_API=3 etcdctl --endpoints "$ADDRESS:$port" endpoint health >/dev/null; }

# Its own death is what tests are about, not that of the machine: it need not wait for the disk.
serve "$folder" ready etcd --name ardea --data-dir "$folder/data" --unsafe-no-fsync \
    --listen-client-urls "http://$ADDRESS:$port" --advertise-client-urls "http://$ADDRESS:$port" \
    --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
    --initial-cluster "ardea=http://127.0.0.1:$peer"
