#!/usr/bin/env bash
# Property tests of the REST interface: requests generated from the OpenAPI document of a real
# cluster.
# No request may get a status of 500 or above, or wait for longer than the time limit.
#
#   scripts/rest-properties.sh ARGS   ARGS go to `schemathesis run`, such as --max-examples 100
#
# Without python3 or a network it says SKIPPED, and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."

SCHEMATHESIS=4.32.5
# The limit of a host's response, with room for a slow machine.
TIMEOUT_SECONDS=60

skip() {
    echo "rest-properties: SKIPPED: $1" >&2
    exit 0
}

command -v python3 >/dev/null || skip "there is no python3 (Debian: apt-get install python3-venv)"
if [ -z "${ARDEA:-}" ]; then
    cargo build --bin ardea >&2
    ARDEA=$PWD/${CARGO_TARGET_DIR:-target}/debug/ardea
fi
tools=${CARGO_TARGET_DIR:-target}/schemathesis-$SCHEMATHESIS
if [ ! -x "$tools/bin/schemathesis" ]; then
    python3 -m venv "$tools" 2>/dev/null || skip "python3 makes no environment (Debian: apt-get install python3-venv)"
    "$tools/bin/pip" install --quiet "schemathesis==$SCHEMATHESIS" || {
        rm -rf "$tools"
        skip "schemathesis can't be installed (no network?)"
    }
fi
tools=$(realpath "$tools")

folder=$(mktemp -d)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
printf '[cluster]\nname = "properties"\nport = %s\napi_rate = 0\n' "$port" >"$folder/ardea.toml"
cp examples/word-count.yaml "$folder"
cd "$folder"
export HOME=$folder XDG_RUNTIME_DIR=$folder
stop() {
    "$ARDEA" kill word-count --yes >&2 || true
    "$ARDEA" cluster stop >&2 || true
    rm -rf "$folder"
}
trap stop EXIT
"$ARDEA" cluster start --workers 1 >&2
"$ARDEA" submit word-count.yaml >&2

# Streams have no end.
endless=(followCluster followJob watchMap getLogs)
"$tools/bin/schemathesis" run "http://127.0.0.1:$port/v1/openapi.json" \
    --checks not_a_server_error --phases coverage,fuzzing --max-examples 20 --max-time 300 \
    --request-timeout "$TIMEOUT_SECONDS" --generation-deterministic --continue-on-failure \
    --warnings off --no-color \
    "${endless[@]/#/--exclude-operation-id=}" "$@"
