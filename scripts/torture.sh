#!/usr/bin/env bash
# The torture test: a job with all kinds of state, on a real cluster with Kafka and PostgreSQL, under
# random faults from a seed. Its published output must equal that of a simple program, record by record.
#
#   scripts/torture.sh [--seed N] [--faults N] [--here] [--bucket] [--mode MODE] [--plan] [--keep]
#
# Without a seed it chooses one and prints it. The default of 200 faults takes half an hour or more. As
# root each host has its own network, which is also partitioned, and the checkpoint disk is filled.
# Otherwise, or with --here, all hosts are on this machine's network, and faults that are not possible
# are SKIPPED with the reason. With --bucket checkpoints are in an object store, which becomes
# unavailable at times, and are not damaged. --mode micro-batch runs the job in micro-batches. --plan only prints the planned faults; --keep keeps all
# files even if the test passes. If servers are unavailable, the test is SKIPPED, or fails with
# ARDEA_SERVICES_REQUIRED=1.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/workspace.sh

cargo test "${workspace[@]}" --test torture -- --long "$@"
