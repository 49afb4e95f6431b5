#!/usr/bin/env bash
# Checks the queue, the ring in shared memory and the engine's wake-ups under loom, which runs their scenarios in every
# interleaving of threads that its memory model allows.
#
#   make loom                            with the bounds of each scenario
#   LOOM_MAX_PREEMPTIONS=2 make loom     a lower bound for scenarios without one
set -euo pipefail
cd "$(dirname "$0")/.."

export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
# A separate target directory: the flag would otherwise rebuild everything in the shared one twice.
cargo test --package ardea-spsc --release --test loom --target-dir target/loom
cargo test --package ardea-shm --release --lib --target-dir target/loom -- model::
cargo test --package ardea-engine --release --lib --target-dir target/loom -- model::
