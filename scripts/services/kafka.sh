#!/usr/bin/env bash
# One Kafka broker, which is its own controller: kafka.sh FOLDER PORT CONTROLLER-PORT. See service.sh.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2 controller=$3
version=${KAFKA_VERSION:-4.1.1}

dependency() { echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"; }

need_packages java openjdk-17-jre-headless
need_packages kcat kcat
if [ ! -e "$CACHE/kafka-$version/.complete" ]; then
    need_packages mvn maven
fi
jars=$(jars "kafka-$version" "$(dependency org.apache.kafka kafka_2.13 "$version")$(
    dependency org.apache.kafka kafka-tools "$version")$(
    dependency org.apache.logging.log4j log4j-slf4j-impl 2.24.3)")
mkdir -p "$folder"
printf '%s\n' process.roles=broker,controller node.id=1 "controller.quorum.voters=1@127.0.0.1:$controller" \
    "listeners=PLAINTEXT://$ADDRESS:$port,CONTROLLER://127.0.0.1:$controller" \
    "advertised.listeners=PLAINTEXT://$ADDRESS:$port" controller.listener.names=CONTROLLER \
    "log.dirs=$folder/data" num.partitions=1 \
    offsets.topic.replication.factor=1 offsets.topic.num.partitions=1 \
    transaction.state.log.replication.factor=1 transaction.state.log.min.isr=1 transaction.state.log.num.partitions=1 \
    group.initial.rebalance.delay.ms=0 >"$folder/server.properties"
printf '%s\n' rootLogger.level=WARN rootLogger.appenderRef.o.ref=o appender.o.type=Console appender.o.name=o \
    appender.o.layout.type=PatternLayout 'appender.o.layout.pattern=%d %p %m%n' >"$folder/log4j2.properties"

java_() {
    java "-Xmx${KAFKA_HEAP:-512m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dlog4j2.configurationFile="$folder/log4j2.properties" -cp "$jars/*" "$@"
}
if [ ! -e "$folder/data/meta.properties" ]; then
    # Any 16 bytes name a cluster.
    java_ kafka.tools.StorageTool format -t ardea-test-cluster-000 -c "$folder/server.properties" >"$folder/format.log" 2>&1 || {
        tail -n 5 "$folder/format.log" >&2
        exit 1
    }
fi

ready() { kcat -b "$ADDRESS:$port" -L -m 2 >/dev/null; }

serve "$folder" ready java "-Xmx${KAFKA_HEAP:-512m}" -XX:+UseSerialGC \
    -Dlog4j2.configurationFile="$folder/log4j2.properties" -cp "$jars/*" kafka.Kafka "$folder/server.properties"
