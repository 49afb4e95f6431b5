#!/usr/bin/env bash
# Runs the ring's tests under Miri, which interprets them and reports undefined behaviour and data races.
#
#   make miri
set -euo pipefail
cd "$(dirname "$0")/.."

# proptest reads the working directory, which Miri's isolation forbids; a few cases are enough at a hundredth of the speed.
export MIRIFLAGS="${MIRIFLAGS:-} -Zmiri-disable-isolation"
export PROPTEST_CASES=${PROPTEST_CASES:-4}
exec cargo +nightly miri test --package ardea-spsc --target-dir target/miri
