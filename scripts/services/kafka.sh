#!/usr/bin/env bash
# One Kafka broker, which is its own controller: kafka.sh FOLDER PORT CONTROLLER-PORT. See service.sh.
#
# With KAFKA_SECURE=1 it has listeners for TLS and SASL besides, whose ports are in FOLDER/ports (SSL SASL_PLAINTEXT SASL_SSL), and
# certificates in FOLDER/tls. Clients of SSL need a certificate. SASL knows the users job (password job-secret), which may do all, and
# guest (guest-secret), which may do nothing. Its transactions end after 30 seconds.
#
# KAFKA_PROPERTIES has further settings of the broker, one a line.
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
scram=()

# free_port AFTER: the next port that nothing listens on.
free_port() {
    local port=$(($1 + 1))
    while (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        port=$((port + 1))
    done
    echo "$port"
}

# signed NAME SUBJECT: a key and a certificate of the test's own authority.
signed() {
    openssl req -newkey rsa:2048 -nodes -keyout "$1.key" -out "$1.csr" -subj "/CN=$2" 2>/dev/null
    printf 'subjectAltName=IP:%s,DNS:localhost\n' "$ADDRESS" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile "$1.ext" -out "$1.pem" 2>/dev/null
    cat "$1.key" "$1.pem" ca.pem >"$1-all.pem"
}

certificates() (
    [ ! -e "$folder/tls" ] || return 0
    mkdir -p "$folder/tls"
    cd "$folder/tls"
    openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 30 -subj /CN=test-authority 2>/dev/null
    signed broker localhost
    signed job job
    signed other other
)

# The properties of the listeners with TLS and SASL.
secure() {
    local ports ssl sasl sasl_ssl listener
    need_packages openssl openssl
    certificates
    if [ ! -e "$folder/ports" ]; then
        ssl=$(free_port $((controller + 200))) sasl=$(free_port "$ssl") sasl_ssl=$(free_port "$sasl")
        echo "$ssl $sasl $sasl_ssl" >"$folder/ports"
    fi
    read -r ssl sasl sasl_ssl <"$folder/ports"
    ports="SSL://$ADDRESS:$ssl,SASL_PLAINTEXT://$ADDRESS:$sasl,SASL_SSL://$ADDRESS:$sasl_ssl"
    printf '%s\n' "listeners=PLAINTEXT://$ADDRESS:$port,CONTROLLER://127.0.0.1:$controller,$ports" \
        "advertised.listeners=PLAINTEXT://$ADDRESS:$port,$ports" \
        listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL \
        ssl.keystore.type=PEM "ssl.keystore.location=$folder/tls/broker-all.pem" \
        ssl.truststore.type=PEM "ssl.truststore.location=$folder/tls/ca.pem" listener.name.ssl.ssl.client.auth=required \
        sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512 transaction.max.timeout.ms=30000 \
        authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer \
        "super.users=User:ANONYMOUS;User:job;User:CN=job"
    for listener in sasl_plaintext sasl_ssl; do
        printf '%s\n' \
            "listener.name.$listener.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_job=\"job-secret\" user_guest=\"guest-secret\";" \
            "listener.name.$listener.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;" \
            "listener.name.$listener.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;"
    done
}

printf '%s\n' process.roles=broker,controller node.id=1 "controller.quorum.voters=1@127.0.0.1:$controller" \
    "listeners=PLAINTEXT://$ADDRESS:$port,CONTROLLER://127.0.0.1:$controller" \
    "advertised.listeners=PLAINTEXT://$ADDRESS:$port" controller.listener.names=CONTROLLER \
    "log.dirs=$folder/data" num.partitions=1 log.retention.ms=-1 \
    offsets.topic.replication.factor=1 offsets.topic.num.partitions=1 \
    transaction.state.log.replication.factor=1 transaction.state.log.min.isr=1 transaction.state.log.num.partitions=1 \
    group.initial.rebalance.delay.ms=0 >"$folder/server.properties"
# What comes later counts.
printf '%s\n' "${KAFKA_PROPERTIES:-}" >>"$folder/server.properties"
if [ "${KAFKA_SECURE:-}" = 1 ]; then
    secure >>"$folder/server.properties"
    for mechanism in SCRAM-SHA-256 SCRAM-SHA-512; do
        scram+=(--add-scram "$mechanism=[name=job,password=job-secret]" --add-scram "$mechanism=[name=guest,password=guest-secret]")
    done
fi
printf '%s\n' rootLogger.level=WARN rootLogger.appenderRef.o.ref=o appender.o.type=Console appender.o.name=o \
    appender.o.layout.type=PatternLayout 'appender.o.layout.pattern=%d %p %m%n' >"$folder/log4j2.properties"

java_() {
    java "-Xmx${KAFKA_HEAP:-512m}" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dlog4j2.configurationFile="$folder/log4j2.properties" -cp "$jars/*" "$@"
}
if [ ! -e "$folder/data/meta.properties" ]; then
    # Any 16 bytes name a cluster.
    java_ kafka.tools.StorageTool format -t ardea-test-cluster-000 "${scram[@]}" -c "$folder/server.properties" >"$folder/format.log" 2>&1 || {
        tail -n 5 "$folder/format.log" >&2
        exit 1
    }
fi

ready() { kcat -b "$ADDRESS:$port" -L -m 2 >/dev/null; }

serve "$folder" ready java "-Xmx${KAFKA_HEAP:-512m}" -XX:+UseSerialGC \
    -Dlog4j2.configurationFile="$folder/log4j2.properties" -cp "$jars/*" kafka.Kafka "$folder/server.properties"
