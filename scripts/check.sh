#!/usr/bin/env bash
# Quick checks of a change: format, house rules, clippy, all tests of the changed packages, and the
# unit tests of the packages that depend on them.
#
#   make check [BASE=COMMIT]     changes since COMMIT, main by default
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/workspace.sh

base=${1:-main}
read -ra changed <<<"$(cargo xtask touched "$base")"
read -ra dependents <<<"$(cargo xtask touched --dependents "$base")"
# Features of the chosen packages: all that can be built here (see workspace.sh).
features=()
case " ${workspace[*]} " in
    *" ardea-cli/etcd,"*" ardea-cli/kafka,"*) features=(--all-features) ;;
    *) echo "check: SKIPPED optional features, since their tools are missing" >&2 ;;
esac

cargo fmt --all --check
cargo xtask tidy
if [ ${#changed[@]} -eq 0 ]; then
    echo "check: no package has changed since $base" >&2
    exit 0
fi
echo "check: ${changed[*]}; unit tests of ${dependents[*]}" >&2
cargo clippy "${workspace[@]}" --all-targets --quiet -- -D warnings
cargo xtask test "${changed[@]}" "${features[@]+"${features[@]}"}"
cargo xtask test "${dependents[@]}" "${features[@]+"${features[@]}"}" --lib --bins
