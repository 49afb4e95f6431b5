# shellcheck shell=bash
# The packages and features that can be built here, as arguments of cargo. Sourced by other scripts.
#
# The build of the etcd client requires protoc; that of the Kafka client requires make and the headers
# of OpenSSL. A feature with missing tools is omitted, and its tests are skipped.
workspace=(--workspace --features ardea/grid,ardea/graph,ardea-examples/ml,ardea-cli/bench,ardea-cli/nats,ardea-cli/parquet,ardea-cli/postgres,ardea-cli/s3,ardea-cli/state-disk)
workspace+=(--features ardea-metastore/zookeeper,ardea-nexmark/columns)
if command -v "${PROTOC:-protoc}" >/dev/null; then
    workspace+=(--features ardea-cli/etcd,ardea-server/etcd)
else
    echo "SKIPPED etcd: there is no protoc (Debian: apt-get install protobuf-compiler libprotobuf-dev)" >&2
fi
if { command -v make || command -v gmake; } >/dev/null && pkg-config --exists openssl 2>/dev/null; then
    workspace+=(--features ardea-cli/kafka,ardea-cli/redis,ardea/avro,ardea/protobuf,ardea-python/kafka)
else
    echo "SKIPPED Kafka: there is no make or no OpenSSL (Debian: apt-get install make libssl-dev pkg-config)" >&2
fi
