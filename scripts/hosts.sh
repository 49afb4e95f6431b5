#!/usr/bin/env bash
# Runs the tests with several hosts: four network namespaces of this machine, with ZooKeeper and then
# with etcd, and failures of every component.
#
#   scripts/hosts.sh [zookeeper|etcd] [SCENARIO …]
#
# SCENARIO is a part of a scenario's name. Requires root. Without namespaces or servers it prints
# SKIPPED with the reason, or fails with ARDEA_SERVICES_REQUIRED=1. Takes about ten minutes.
# Measurements are printed to standard output.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
    echo "hosts: SKIPPED the suite of several hosts: network namespaces need root" >&2
    [ "${ARDEA_SERVICES_REQUIRED:-}" = 1 ] && exit 1
    exit 0
fi
if ! command -v "${PROTOC:-protoc}" >/dev/null; then
    echo "hosts: SKIPPED etcd: its client is built with protoc (Debian: apt-get install protobuf-compiler)" >&2
    cargo test -p ardea-cli --test hosts -- zookeeper "$@"
else
    cargo test -p ardea-cli --features etcd --test hosts -- "$@"
fi
