# shellcheck shell=bash
# The packages that can be built here, as arguments of cargo; sourced by the scripts beside it.
#
# The client of etcd is generated with protoc when it is built. Where that is missing, all but this one crate is built.
workspace=(--workspace)
if ! command -v "${PROTOC:-protoc}" >/dev/null; then
    echo "SKIPPED ardea-state-etcd: there is no protoc (Debian: apt-get install protobuf-compiler libprotobuf-dev)" >&2
    workspace+=(--exclude ardea-state-etcd)
fi
