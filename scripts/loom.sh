#!/usr/bin/env bash
# Checks the ring under loom, which runs its tests in every interleaving of threads that the memory model allows.
#
#   make loom                            at most 3 preemptions a run
#   LOOM_MAX_PREEMPTIONS=4 make loom     more interleavings, and much more time
#
# Documentation tests are left out: under loom, a queue works only inside a model.
set -euo pipefail
cd "$(dirname "$0")/.."

export LOOM_MAX_PREEMPTIONS=${LOOM_MAX_PREEMPTIONS:-3}
export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
# Its own target directory: the flag would rebuild everything in the shared one, twice.
exec cargo test --package ardea-ring --lib --tests --release --target-dir target/loom
