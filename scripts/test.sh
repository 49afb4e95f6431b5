#!/usr/bin/env bash
# Runs all tests: unit, property, compile-fail, integration and documentation tests, then the NEXMark oracle.
#
#   make test
#
# The oracle's tests (files tests/oracle*.rs) may be marked #[ignore]; here they run, wherever there is a python3.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/workspace.sh

# All that fails is told, not the first program alone.
cargo test "${workspace[@]}" --no-fail-fast

if ! compgen -G 'crates/*/tests/oracle*.rs' >/dev/null; then
    exit 0
fi
if command -v python3 >/dev/null; then
    cargo test "${workspace[@]}" --test 'oracle*' -- --ignored
else
    echo "test: SKIPPED the NEXMark oracle: there is no python3 (Debian: apt-get install python3 python3-venv)" >&2
fi
