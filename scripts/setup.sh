#!/usr/bin/env bash
# Installs the missing tools of a make target; quick and silent if none is missing.
#
#   scripts/setup.sh build|test|python|bench|lint|docs|loom|miri|ui|ci
#
# Requires rustup (https://rustup.rs) and bash. System packages are installed with apt-get, which
# requires root; otherwise the script prints the missing packages and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

# The version of the format of deny.toml.
CARGO_DENY_VERSION=0.20.2

say() { echo "setup: $*" >&2; }

die() {
    say "$*"
    exit 1
}

# Runs a command as root, if possible. Without a terminal sudo must not need a password.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        sudo "$@"
    else
        return 1
    fi
}

# install WHY PACKAGE...: installs Debian packages.
install() {
    local why=$1
    shift
    say "installing $* ($why)"
    if ! command -v apt-get >/dev/null; then
        say "there is no apt-get here; install by hand what your system calls: $*"
        return 1
    fi
    if ! as_root true; then
        say "this user may not install packages; ask for: apt-get install --no-install-recommends $*"
        return 1
    fi
    # Package lists may be missing or old, and one broken list must not block the others.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update >&2 || say "apt-get update failed; going on"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@" >&2
}

need_command() {
    command -v "$1" >/dev/null || install "$3" "$2" || die "cannot go on without $1"
}

# Installs a sufficient version of Rust, and a C compiler for a dependency written in C (zstd).
need_rust() {
    local wanted have
    command -v cargo >/dev/null || die "there is no cargo; install rustup first, see https://rustup.rs"
    if ! rustc --version >/dev/null 2>&1; then
        command -v rustup >/dev/null || die "rustc does not run; install rustup, see https://rustup.rs"
        say "installing the stable toolchain"
        rustup toolchain install stable --profile minimal >&2
        rustup default stable >&2
    fi
    wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    have=$(rustc --version | cut -d ' ' -f 2)
    if [ "$(printf '%s\n' "$wanted" "${have%%-*}" | sort -V | head -n 1)" != "$wanted" ]; then
        die "Rust $have is too old, $wanted is needed; run: rustup update stable"
    fi
    need_command cc gcc "a C compiler, for zstd"
    # The compiler requires the headers of the C library.
    [ -e /usr/include/stdlib.h ] || ! command -v apt-get >/dev/null ||
        install "headers of the C library" libc6-dev || die "cannot go on without them"
}

# Installs protoc and its standard descriptions, with which the client of etcd is generated. Without
# them the build skips etcd (scripts/workspace.sh).
need_protoc() {
    local standard
    standard=$(dirname "$(command -v "${PROTOC:-protoc}" || echo none)")/../include/google/protobuf/descriptor.proto
    [ -e "$standard" ] || install "for the client of etcd" protobuf-compiler libprotobuf-dev ||
        say "without protoc the client of etcd will be skipped"
}

# Installs the headers of OpenSSL, with which the client of Kafka is compiled. Without them the build
# skips Kafka (scripts/workspace.sh).
need_openssl() {
    pkg-config --exists openssl 2>/dev/null || install "for the client of Kafka" libssl-dev pkg-config make ||
        say "without OpenSSL's headers the client of Kafka will be skipped"
}

need_component() {
    [ -x "$(rustc --print sysroot)/bin/$2" ] && return
    if command -v rustup >/dev/null; then
        say "installing the component $1"
        rustup component add "$1" >&2
    else
        command -v "$2" >/dev/null || die "there is no $2; install your system's package of $1"
    fi
}

# Installs Python for its SDK and for the oracle of the NEXMark queries. Tests skip both without it.
need_python() {
    local probe='import sys; from importlib.util import find_spec as f; sys.exit(not (f("venv") and f("ensurepip")))'
    if ! command -v python3 >/dev/null || ! python3 -I -S -c "$probe" 2>/dev/null; then
        install "for the Python SDK and the NEXMark oracle" python3 python3-venv ||
            say "without python3 and its venv module the Python SDK and the NEXMark oracle will be skipped"
    fi
}

# Installs cargo-deny, built without optimisation to save time.
need_cargo_deny() {
    command -v cargo-deny >/dev/null && return
    say "building cargo-deny $CARGO_DENY_VERSION, once"
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug cargo-deny \
        --version "$CARGO_DENY_VERSION" >&2 || die "cargo-deny could not be built (see above)"
}

need_miri() {
    command -v rustup >/dev/null || die "Miri comes with rustup only, see https://rustup.rs"
    rustup which --toolchain nightly miri >/dev/null 2>&1 &&
        [ -d "$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ] && return
    say "installing Miri (of the nightly toolchain)"
    rustup toolchain install nightly --profile minimal --component miri,rust-src >&2
}

# Installs what the tests of the web page need. They are skipped without it.
need_browser() {
    command -v node >/dev/null && command -v npm >/dev/null ||
        install "for the tests of the web page" nodejs npm || say "without node the tests of the page will be skipped"
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null ||
        install "for the tests of the web page" chromium || say "without Chromium the tests of the page will be skipped"
}

case ${1:-} in
build | bench | loom)
    need_rust
    ;;
docs)
    need_rust
    need_protoc
    need_openssl
    ;;
python)
    need_rust
    need_python
    ;;
test)
    need_rust
    need_protoc
    need_openssl
    need_python
    ;;
lint)
    need_rust
    need_protoc
    need_openssl
    need_component rustfmt cargo-fmt
    need_component clippy cargo-clippy
    need_cargo_deny
    ;;
miri)
    need_rust
    need_miri
    ;;
ui)
    need_rust
    need_browser
    ;;
ci)
    need_command make make "runs the checks"
    need_command git git "clones the checkout for the smoke test"
    ;;
*)
    die "usage: scripts/setup.sh build|test|python|bench|lint|docs|loom|miri|ui|ci"
    ;;
esac
