#!/usr/bin/env bash
# One pgbouncer in transaction mode, and the PostgreSQL server behind it: pgbouncer.sh FOLDER PORT PEER. See service.sh and postgres.sh.
# PORT is the pooler's, PEER the server's, which is also written to the file server.port in the folder.
# The database `by_session` is `postgres` in session mode, `by_statement` in statement mode. Of `one_by_session`, `two_by_session`,
# `one_by_transaction` and `two_by_transaction` the pool has one or two connections. `one_refused` equals `one_by_session`, for the
# test that exhausts it.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2 peer=$3

need_packages pgbouncer pgbouncer
mkdir -p "$folder"
chmod 711 "$folder"
echo "$peer" >"$folder/server.port"

# The server ends when its input does, which is held open by this script alone.
exec 8> >("$(dirname "$0")/postgres.sh" "$folder/server" "$peer" >"$folder/server.ready" 2>"$folder/server.err")
end=$((SECONDS + 90))
until grep -q ^ready "$folder/server.ready" 2>/dev/null; do
    if grep -q 'ask for' "$folder/server.err" 2>/dev/null; then cannot "$(tail -n 1 "$folder/server.err")"; fi
    if [ $SECONDS -ge $end ]; then
        cat "$folder/server.err" >&2
        exit 1
    fi
    sleep 0.1
done

# It does not run as root.
as=()
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid postgres --regid postgres --clear-groups)
fi
cat >"$folder/pgbouncer.ini" <<CONFIG
[databases]
by_session = host=$ADDRESS port=$peer user=postgres dbname=postgres pool_mode=session
by_statement = host=$ADDRESS port=$peer user=postgres dbname=postgres pool_mode=statement
one_by_session = host=$ADDRESS port=$peer user=postgres dbname=postgres pool_mode=session pool_size=1
one_refused = host=$ADDRESS port=$peer user=postgres dbname=postgres pool_mode=session pool_size=1
two_by_session = host=$ADDRESS port=$peer user=postgres dbname=postgres pool_mode=session pool_size=2
one_by_transaction = host=$ADDRESS port=$peer user=postgres dbname=postgres pool_size=1
two_by_transaction = host=$ADDRESS port=$peer user=postgres dbname=postgres pool_size=2
* = host=$ADDRESS port=$peer user=postgres
[pgbouncer]
listen_addr = $ADDRESS
listen_port = $port
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 100
unix_socket_dir =
CONFIG
chmod 644 "$folder/pgbouncer.ini"

ready() { pg_isready -q -h "$ADDRESS" -p "$port" -U postgres -d postgres; }
apart() {
    exec 8>&-
    exec "$@"
}

cd /
serve "$folder" ready apart "${as[@]}" "$(command -v pgbouncer || echo /usr/sbin/pgbouncer)" "$folder/pgbouncer.ini"
