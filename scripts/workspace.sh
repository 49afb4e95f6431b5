# shellcheck shell=bash
# The packages and features that can be built here, as arguments of cargo; sourced by the scripts beside it.
#
# The client of etcd is generated with protoc when it is built. Where that is missing, all but this one crate is built, and the
# program `ardea` without it. The client of Kafka is compiled from C with make and OpenSSL's headers, and left out in the same way.
workspace=(--workspace --features ardea/grid,ardea-cli/nats,ardea-cli/postgres,ardea-cli/s3,ardea-cli/state-disk)
if command -v "${PROTOC:-protoc}" >/dev/null; then
    workspace+=(--features ardea-cli/etcd,ardea-master/etcd)
else
    echo "SKIPPED ardea-state-etcd: there is no protoc (Debian: apt-get install protobuf-compiler libprotobuf-dev)" >&2
    workspace+=(--exclude ardea-state-etcd)
fi
if { command -v make || command -v gmake; } >/dev/null && pkg-config --exists openssl 2>/dev/null; then
    workspace+=(--features ardea-cli/kafka,ardea-cli/redis)
else
    echo "SKIPPED ardea-connect-kafka: there is no make or no OpenSSL (Debian: apt-get install make libssl-dev pkg-config)" >&2
    workspace+=(--exclude ardea-connect-kafka)
fi
