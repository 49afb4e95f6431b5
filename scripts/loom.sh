#!/usr/bin/env bash
# Checks the ring and the engine's wake-ups under loom, which runs their scenarios in every interleaving of threads that
# its memory model allows.
#
#   make loom                            as each scenario says
#   LOOM_MAX_PREEMPTIONS=2 make loom     fewer interleavings of those that name no bound of their own
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
# Its own target directory: the flag would rebuild everything in the shared one, twice.
cargo test --package ardea-spsc --release --test loom --target-dir target/loom
cargo test --package ardea-engine --release --lib --target-dir target/loom -- model::
