#!/usr/bin/env bash
# One ZooKeeper server: zookeeper.sh FOLDER PORT. See service.sh.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2
version=${ZOOKEEPER_VERSION:-3.9.3}

dependency() { echo "<dependency><groupId>$1</groupId><artifactId>$2</artifactId><version>$3</version></dependency>"; }

need_packages java openjdk-17-jre-headless
if [ ! -e "$CACHE/zookeeper-$version/.complete" ]; then
    need_packages mvn maven
fi
jars=$(jars "zookeeper-$version" "$(dependency org.apache.zookeeper zookeeper "$version")$(
    dependency org.xerial.snappy snappy-java 1.1.10.5)$(
    dependency io.dropwizard.metrics metrics-core 4.1.12.1)$(
    dependency commons-cli commons-cli 1.5.0)")
mkdir -p "$folder/data"
# Ticks are short, so that sessions may be: a session lives at least two of them.
printf '%s\n' "dataDir=$folder/data" "clientPort=$port" clientPortAddress="$ADDRESS" tickTime=500 \
    maxSessionTimeout=60000 maxClientCnxns=0 admin.enableServer=false '4lw.commands.whitelist=ruok' >"$folder/zoo.cfg"
echo '<configuration><appender name="o" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %p %m%n</pattern>
</encoder></appender><root level="WARN"><appender-ref ref="o"/></root></configuration>' >"$folder/logback.xml"

ready() {
    local answer
    exec 3<>"/dev/tcp/$ADDRESS/$port" && printf ruok >&3 && read -r -t 2 -N 4 answer <&3 && [ "$answer" = imok ]
}

serve "$folder" ready java -Xmx256m -XX:TieredStopAtLevel=1 -Dlogback.configurationFile="$folder/logback.xml" \
    -Dzookeeper.forceSync=no -cp "$jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain "$folder/zoo.cfg"
