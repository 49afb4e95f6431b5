#!/usr/bin/env bash
# One PostgreSQL server, which lets everybody in as user postgres to the database postgres: postgres.sh FOLDER PORT. See service.sh.
# With a file server.crt and server.key in the folder it offers TLS.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2

programs() { find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1; }

need_packages pg_isready postgresql postgresql-client
bin=$(programs)
[ -x "$bin/postgres" ] || cannot "there is no server below /usr/lib/postgresql; ask for: apt-get install postgresql"

# It does not run as root.
as=()
if [ "$(id -u)" = 0 ]; then
    id postgres >/dev/null 2>&1 || cannot "there is no user postgres to run it"
    as=(setpriv --reuid postgres --regid postgres --clear-groups)
fi
mkdir -p "$folder/data"
chmod 711 "$folder"
if [ ! -e "$folder/data/PG_VERSION" ]; then
    [ "${#as[@]}" = 0 ] || chown postgres "$folder/data"
    chmod 700 "$folder/data"
    (cd / && "${as[@]}" "$bin/initdb" -D "$folder/data" -U postgres -A trust -E UTF8 --no-sync) >"$folder/initdb.log" 2>&1 || {
        tail -n 5 "$folder/initdb.log" >&2
        exit 1
    }
fi
# It lets in who is on this machine; clients on other hosts are of its own network.
if [ "$ADDRESS" != 127.0.0.1 ] && ! grep -q '^host all all samenet' "$folder/data/pg_hba.conf"; then
    echo 'host all all samenet trust' >>"$folder/data/pg_hba.conf"
fi
# The processes of one that was killed go by themselves, but not at once; two servers must not have the same data.
for _ in $(seq 100); do
    left=$(find /proc/[0-9]*/cwd -maxdepth 0 -lname "$folder/data" 2>/dev/null | cut -d/ -f3) || true
    [ -n "$left" ] || break
    # shellcheck disable=SC2086 # several numbers
    kill -KILL $left 2>/dev/null || true
    sleep 0.1
done
# It holds a number that another process may have by now.
rm -f "$folder/data/postmaster.pid"

ready() { pg_isready -q -h "$ADDRESS" -p "$port" -U postgres -d postgres; }

cd /
serve "$folder" ready "${as[@]}" "$bin/postgres" -D "$folder/data" -p "$port" -c "listen_addresses=$ADDRESS" \
    -c unix_socket_directories= -c max_connections=60 -c shared_buffers=32MB
