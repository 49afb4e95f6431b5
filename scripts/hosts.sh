#!/usr/bin/env bash
# Runs the suite of several hosts: four network namespaces of this machine, ZooKeeper, then etcd, and all that may die.
#
#   scripts/hosts.sh [zookeeper|etcd] [SCENARIO …]
#
# SCENARIO is a part of a scenario's name. It needs root; where there can be no namespaces or no server it says SKIPPED, and why,
# and with ARDEA_SERVICES_REQUIRED=1 it fails. Takes some ten minutes. What was measured by the way is on standard output.
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
