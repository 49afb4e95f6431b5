#!/usr/bin/env bash
# Runs every check that is not a test. A failure does not stop the others; failed checks are listed at
# the end.
#
#   make lint
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/workspace.sh

failed=()

# step NAME COMMAND...
step() {
    local name=$1
    shift
    echo "lint: $name" >&2
    "$@" || failed+=("$name")
}

# Checks for known vulnerabilities. Prints SKIPPED if the database cannot be fetched without a network.
advisories() {
    local log
    log=$(mktemp)
    if cargo deny fetch db 2>"$log"; then
        cargo deny --offline check advisories
    elif grep -qiE 'could not resolve|unable to (connect|access)|timed out|unreachable|refused' "$log"; then
        echo "lint: SKIPPED advisories: the advisory database cannot be fetched from here (no network?)" >&2
    else
        cat "$log" >&2
        rm -f "$log"
        return 1
    fi
    local status=$?
    rm -f "$log"
    return "$status"
}

step format cargo fmt --all --check
step clippy cargo clippy "${workspace[@]}" --all-targets --keep-going --quiet -- -D warnings
# A suite that `cargo test` leaves out, which `--all-targets` does not include.
step "clippy of the hosts' suite" cargo clippy "${workspace[@]}" --test hosts --quiet -- -D warnings
step docs env RUSTDOCFLAGS="-D warnings" cargo doc "${workspace[@]}" --no-deps --lib --quiet
step "licences, bans, sources" cargo deny check licenses bans sources
step advisories advisories
step tidy cargo xtask tidy
step "web page" scripts/ui.sh check

if [ ${#failed[@]} -gt 0 ]; then
    printf 'lint: FAILED: %s\n' "${failed[@]}" >&2
    exit 1
fi
echo "lint: all is well" >&2
