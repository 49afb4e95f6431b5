#!/usr/bin/env bash
# A Kafka broker with listeners for TLS and SASL: kafka-secure.sh FOLDER PORT CONTROLLER-PORT. See kafka.sh.
set -euo pipefail
KAFKA_SECURE=1 exec "$(dirname "$0")/kafka.sh" "$@"
