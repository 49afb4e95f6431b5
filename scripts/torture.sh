#!/usr/bin/env bash
# The torture test: a job with everything that remembers something, on a real cluster with Kafka and PostgreSQL, while all that can go
# wrong does, at random from a seed; what it has published in the end has to be what a simple program computes, record by record.
#
#   scripts/torture.sh [--seed N] [--faults N] [--here] [--bucket] [--plan] [--keep]
#
# Without a seed it takes some, and says which; 200 faults unless told, which take half an hour or more. As root hosts have networks of
# their own and are cut off as well, and the disk of snapshots is filled; elsewhere, or with --here, all hosts are on this
# machine's network, and what can't be done is SKIPPED with a word. With --bucket snapshots are in an object store, which goes
# and comes back, and are not damaged. --plan only prints what would be done; --keep keeps all files even if all is well,
# as they are kept when something is wrong. Servers that can't be had: SKIPPED, or, with ARDEA_SERVICES_REQUIRED=1, failed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/workspace.sh

cargo test "${workspace[@]}" --test torture -- --long "$@"
