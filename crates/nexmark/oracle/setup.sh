#!/bin/sh
# Makes the Python environment of the oracle in target/oracle-venv and installs requirements.txt into it.
# If that was done before with the same requirements, it does nothing. It says nothing unless something is wrong;
# afterwards target/oracle-venv/bin/python3 runs oracle.py, compare.py and the tests.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$(cd "$here/../../.." && pwd)/target}
venv=$target/oracle-venv
stamp=$venv/installed-requirements.txt

mkdir -p "$target"
# Tests may run side by side: one of them installs, the others wait.
exec 9> "$target/oracle-venv.lock"
if command -v flock > /dev/null; then
    flock 9
fi

# The stamp is written last, so an interrupted installation is done again.
if cmp -s "$here/requirements.txt" "$stamp" && [ -x "$venv/bin/python3" ]; then
    exit 0
fi

rm -rf "$venv"
if ! output=$(python3 -m venv "$venv" 2>&1); then
    printf '%s\n' "$output" >&2
    echo "oracle/setup.sh: python3 cannot make a virtual environment in $venv." >&2
    echo "Install Python 3.9 or later with its venv module (Debian: apt-get install python3-venv)." >&2
    exit 1
fi
if ! output=$("$venv/bin/python3" -m pip install --quiet --disable-pip-version-check \
    --requirement "$here/requirements.txt" 2>&1); then
    printf '%s\n' "$output" >&2
    echo "oracle/setup.sh: installing $here/requirements.txt failed; is the Python package index reachable?" >&2
    exit 1
fi
cp "$here/requirements.txt" "$stamp"
