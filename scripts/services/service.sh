# shellcheck shell=bash
# How a test runs a real server; sourced by the scripts beside it, one a server.
#
# A server is installed once (Debian packages, Maven artifacts), runs on loopback (or at the address ARDEA_SERVICES_ADDRESS, for
# clients on other hosts) with its data below a folder of the caller's choice, and goes with its caller: when the caller closes its
# end of standard input, however it comes to that, the server is stopped. Nothing else is ever stopped.
#
# Exit code 75 says, with the reason as the last line, that the server cannot be had on this machine.
set -euo pipefail

# What is downloaded is kept here.
CACHE=${ARDEA_SERVICES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ardea-services}

# Where a server listens.
# shellcheck disable=SC2034 # for the scripts that source this
ADDRESS=${ARDEA_SERVICES_ADDRESS:-127.0.0.1}

# cannot REASON: not on this machine.
cannot() {
    echo "$*" >&2
    exit 75
}

# Only one of several that install at once does.
alone() {
    mkdir -p "$CACHE"
    exec 9>"$CACHE/lock"
    flock 9
}

# need_packages COMMAND PACKAGE...: installs Debian packages if there is no such command; starts none of their daemons.
need_packages() {
    local command=$1 policy=/usr/sbin/policy-rc.d made=
    shift
    command -v "$command" >/dev/null && return
    command -v apt-get >/dev/null || cannot "there is no $command, and no apt-get to install $*"
    [ "$(id -u)" = 0 ] || cannot "there is no $command; ask for: apt-get install --no-install-recommends $*"
    alone
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        made=$policy
    fi
    local get=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
    "${get[@]}" install -y --no-install-recommends "$@" >/dev/null 2>&1 ||
        { "${get[@]}" update && "${get[@]}" install -y --no-install-recommends "$@"; } >/dev/null 2>&1 || true
    [ -z "$made" ] || rm -f "$made"
    flock -u 9
    command -v "$command" >/dev/null || cannot "apt-get could not install $* (no network?)"
}

# jars NAME DEPENDENCIES: fetches a program's jars from Maven once, and prints their folder.
jars() {
    local folder=$CACHE/$1
    # What is there needs no lock: another script may hold it for minutes.
    if [ -e "$folder/.complete" ]; then
        echo "$folder/jars"
        return
    fi
    alone >&2
    if [ ! -e "$folder/.complete" ]; then
        rm -rf "$folder"
        mkdir -p "$folder"
        printf '%s' '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>' \
            "<groupId>ardea.test</groupId><artifactId>$1</artifactId><version>1</version>" \
            "<dependencies>$2</dependencies></project>" >"$folder/pom.xml"
        mvn -q -B -f "$folder/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
            -DoutputDirectory="$folder/jars" >"$folder/log" 2>&1 ||
            cannot "Maven could not fetch $1: $(grep -m 1 ERROR "$folder/log" || tail -n 1 "$folder/log")"
        touch "$folder/.complete"
    fi
    flock -u 9
    echo "$folder/jars"
}

# free_port PORT: prints a port behind this one at which nothing listens.
free_port() {
    local port=$1
    while port=$((port + 1)) && (exec 3<>"/dev/tcp/$ADDRESS/$port") 2>/dev/null; do :; done
    echo "$port"
}

# wait_for COMMAND...: runs a command until it succeeds, for a minute at most.
wait_for() {
    local end=$((SECONDS + 60))
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.1
    done
}

# What was started beside a server, the latest first.
COMPANIONS=

# beside FOLDER COMMAND...: starts what a server needs, before it; it is stopped after it.
beside() {
    local folder=$1
    shift
    "$@" >>"$folder/log" 2>&1 </dev/null 9>&- &
    COMPANIONS="$! $COMPANIONS"
    # shellcheck disable=SC2064 # these very pids
    trap "stop $COMPANIONS" EXIT
}

# serve FOLDER READY COMMAND...: runs a server until standard input ends. Prints `ready PID` once READY succeeds, for which it has
# ARDEA_SERVICES_START_SECONDS (180: a loaded machine starts a JVM in minutes; a server that ends is noticed at once).
serve() {
    local folder=$1 ready=$2 pid end=$((SECONDS + ${ARDEA_SERVICES_START_SECONDS:-180}))
    shift 2
    "$@" >>"$folder/log" 2>&1 </dev/null 9>&- &
    pid=$!
    # shellcheck disable=SC2064 # these very pids
    trap "stop $pid $COMPANIONS" EXIT
    until "$ready" 2>/dev/null; do
        if ! kill -0 "$pid" 2>/dev/null; then
            tail -n 15 "$folder/log" >&2
            exit 1
        fi
        if [ $SECONDS -ge $end ]; then
            tail -n 15 "$folder/log" >&2
            echo "the server was not ready after ${ARDEA_SERVICES_START_SECONDS:-180} s" >&2
            exit 1
        fi
        sleep 0.1
    done
    echo "ready $pid"
    cat >/dev/null
}

# stop PID...: asks children to end, one after the other, and makes each after ten seconds.
stop() {
    local pid end
    for pid; do
        end=$((SECONDS + 10))
        kill -TERM "$pid" 2>/dev/null || true
        while kill -0 "$pid" 2>/dev/null; do
            [ $SECONDS -lt $end ] || kill -KILL "$pid" 2>/dev/null || true
            sleep 0.05
        done
        wait "$pid" 2>/dev/null || true
    done
}
