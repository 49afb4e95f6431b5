#!/usr/bin/env bash
# Builds and tests the web page.
#
#   scripts/ui.sh build        the page from its sources, into crates/rest/page
#   scripts/ui.sh check        the types, the tests without a browser, and that the committed files are
#                              those of the sources
#   scripts/ui.sh test ARGS    the page on real clusters in Chromium; ARGS go to node's test runner
#   scripts/ui.sh screenshots  the pictures of the documentation
#
# Without node, npm or Chromium it says SKIPPED, and succeeds.
set -euo pipefail
cd "$(dirname "$0")/.."

need() {
    if ! command -v "$1" >/dev/null; then
        echo "ui: SKIPPED: there is no $1 ($2)" >&2
        exit 0
    fi
}

# Installs the packages of ui/package-lock.json once.
packages() {
    need node "Debian: apt-get install nodejs npm"
    need npm "Debian: apt-get install nodejs npm"
    if ! cmp --silent ui/package-lock.json ui/node_modules/.installed-lock; then
        if ! (cd ui && npm ci --no-audit --no-fund >&2); then
            echo "ui: SKIPPED: the packages of ui/package-lock.json can't be installed (no network?)" >&2
            exit 0
        fi
        cp ui/package-lock.json ui/node_modules/.installed-lock
    fi
}

types() { (cd ui && npx tsc --project .); }

case ${1:-} in
build)
    packages
    types
    node ui/build.mjs
    ;;
check)
    packages
    types
    node ui/build.mjs --check
    node --test ui/test/figures.test.mjs
    ;;
test | screenshots)
    packages
    CHROMIUM=${CHROMIUM:-$(command -v chromium || command -v chromium-browser || true)}
    export CHROMIUM=${CHROMIUM:-chromium}
    need "$CHROMIUM" "Debian: apt-get install chromium"
    if [ -z "${ARDEA:-}" ]; then
        cargo build --bin ardea >&2
        ARDEA=$PWD/${CARGO_TARGET_DIR:-target}/debug/ardea
    fi
    export ARDEA
    if [ "$1" = test ]; then
        node ui/build.mjs --check
        shift
        node --test --test-concurrency=1 "$@" ui/test/figures.test.mjs ui/test/page.test.mjs
    else
        node ui/test/screenshots.mjs
    fi
    ;;
*)
    echo "usage: scripts/ui.sh build|check|test|screenshots" >&2
    exit 2
    ;;
esac
