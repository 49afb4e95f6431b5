#!/usr/bin/env bash
# One Redis server that talks TLS alone, and wants a certificate of its clients: redis-tls.sh FOLDER PORT. See service.sh.
# The folder holds ca.pem, and client.pem with client.key, which clients need.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2

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

ready() {
    redis-cli -h "$ADDRESS" -p "$port" --tls --cacert ca.pem --cert client.pem --key client.key ping | grep -q PONG
}

serve "$folder" ready redis-server --bind "$ADDRESS" --port 0 --tls-port "$port" --dir "$folder" \
    --tls-cert-file server.pem --tls-key-file server.key --tls-ca-cert-file ca.pem --tls-auth-clients yes \
    --appendonly yes --appendfsync always --save '' --daemonize no --protected-mode no
