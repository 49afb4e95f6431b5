#!/usr/bin/env bash
# One Redis server that talks TLS alone, and wants a certificate of its clients: redis-tls.sh FOLDER PORT PEER. See service.sh.
# At PEER a sentinel that knows it as `main` does so too; that port is also written to the file sentinel.port in the folder.
# The folder holds ca.pem, and client.pem with client.key, which clients need.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2 peer=$3

need_packages redis-server redis-server
need_packages redis-cli redis-tools
need_packages openssl openssl
mkdir -p "$folder"
cd "$folder"
if [ ! -e client.pem ]; then
    new=(openssl req -newkey rsa:2048 -nodes -sha256)
    "${new[@]}" -x509 -days 30 -subj /CN=authority -keyout ca.key -out ca.pem 2>/dev/null
    for name in server client; do
        "${new[@]}" -subj "/CN=$name" -keyout $name.key -out $name.csr 2>/dev/null
        printf 'subjectAltName=IP:%s\n' "$ADDRESS" >$name.ext
        openssl x509 -req -sha256 -days 30 -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial \
            -extfile $name.ext -out $name.pem 2>/dev/null
    done
fi

echo "$peer" >sentinel.port
cat >sentinel.conf <<CONFIG
bind $ADDRESS
port 0
tls-port $peer
tls-cert-file $PWD/server.pem
tls-key-file $PWD/server.key
tls-ca-cert-file $PWD/ca.pem
tls-auth-clients yes
tls-replication yes
dir $PWD
protected-mode no
sentinel monitor main $ADDRESS $port 1
CONFIG
beside "$folder" redis-server sentinel.conf --sentinel

ask() {
    local at=$1
    shift
    redis-cli -h "$ADDRESS" -p "$at" --tls --cacert ca.pem --cert client.pem --key client.key "$@"
}
ready() {
    ask "$port" ping | grep -q PONG && ask "$peer" sentinel master main | grep -q '^master$'
}

serve "$folder" ready redis-server --bind "$ADDRESS" --port 0 --tls-port "$port" --dir "$folder" \
    --tls-cert-file server.pem --tls-key-file server.key --tls-ca-cert-file ca.pem --tls-auth-clients yes \
    --appendonly yes --appendfsync always --save '' --daemonize no --protected-mode no
