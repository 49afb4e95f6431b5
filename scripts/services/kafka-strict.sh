#!/usr/bin/env bash
# A Kafka broker that makes no topic by itself and ends transactions after ten seconds: kafka-strict.sh FOLDER PORT CONTROLLER-PORT.
# See kafka.sh.
set -euo pipefail
KAFKA_PROPERTIES="auto.create.topics.enable=false
transaction.max.timeout.ms=10000
transaction.abort.timed.out.transaction.cleanup.interval.ms=500" exec "$(dirname "$0")/kafka.sh" "$@"
