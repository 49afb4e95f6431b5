#!/usr/bin/env bash
# Runs all tests: unit, property, compile-fail, integration and documentation tests, then the
# NEXMark oracle and the Python SDK.
#
#   make test
#
# The oracle's tests (files tests/oracle*.rs) may be marked #[ignore]; they run here if python3 is
# installed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/workspace.sh

failed=()
# Reports all failures, not only those of the first program.
cargo xtask test "${workspace[@]}" || failed+=("test programs")
cargo test "${workspace[@]}" --doc --no-fail-fast || failed+=("documentation tests")

if compgen -G 'crates/*/tests/oracle*.rs' >/dev/null; then
    if command -v python3 >/dev/null; then
        cargo test "${workspace[@]}" --test 'oracle*' -- --ignored || failed+=("oracle")
    else
        echo "test: SKIPPED the NEXMark oracle: there is no python3 (Debian: apt-get install python3 python3-venv)" >&2
    fi
fi
# The library of the SDK with the features of the tests, which are built already: a wheel would be
# built anew (`make python`). The filter selects few tests, since all are built.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cargo build "${workspace[@]}" --lib --test allocations --quiet &&
    PYTHON_LIBRARY=$target/debug/lib_ardea.so TEST_ARDEA_PROGRAM=$target/debug/ardea scripts/python.sh ||
    failed+=("Python SDK")
if [ ${#failed[@]} -gt 0 ]; then
    printf 'test: FAILED: %s\n' "${failed[@]}" >&2
    exit 1
fi
