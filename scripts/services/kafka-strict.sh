#!/usr/bin/env bash
# A Kafka broker that makes no topic by itself and ends transactions after a second: kafka-strict.sh FOLDER PORT CONTROLLER-PORT.
# See kafka.sh.
set -euo pipefail
KAFKA_PROPERTIES="auto.create.topics.enable=false
transaction.max.timeout.ms=1000
transaction.abort.timed.out.transaction.cleanup.interval.ms=500" exec "$(dirname "$0")/kafka.sh" "$@"
