#!/usr/bin/env bash
# Runs the tests of the queue and of the ring in shared memory under Miri, which interprets them and reports undefined behaviour and data races.
#
#   make miri
set -euo pipefail
cd "$(dirname "$0")/.."

# proptest reads the working directory, which Miri's isolation forbids. Few cases, because Miri is a
# hundred times slower.
export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation"
export PROPTEST_CASES=${PROPTEST_CASES:-4}
cargo +nightly miri test --package ardea-spsc --target-dir target/miri
exec cargo +nightly miri test --package ardea-shm --lib --target-dir target/miri
