#!/usr/bin/env bash
# MinIO, an object store that speaks S3, with the bucket `states`: minio.sh FOLDER PORT. See service.sh.
# Access key ardea, secret key ardea-secret. It is compiled once, by Go, from its own repository.
# shellcheck source-path=SCRIPTDIR source=service.sh
. "$(dirname "$0")/service.sh"
folder=$1 port=$2
version=${MINIO_VERSION:-v0.0.0-20260212201848-7aac2a2c5b7c}

export MINIO_ROOT_USER=ardea MINIO_ROOT_PASSWORD=ardea-secret MINIO_UPDATE=off MINIO_BROWSER=off
need_packages curl curl

# The program, if it is there or can be compiled.
program() {
    local program=$CACHE/minio-$version/minio
    if [ ! -x "$program" ]; then
        command -v go >/dev/null || cannot "there is no go (1.24 or later) to compile MinIO with"
        alone
        if [ ! -x "$program" ]; then
            mkdir -p "$CACHE/minio-$version/module"
            printf 'module ardea.test/minio\n\ngo 1.24.0\n\nrequire github.com/minio/minio %s\n' "$version" \
                >"$CACHE/minio-$version/module/go.mod"
            (cd "$CACHE/minio-$version/module" &&
                CGO_ENABLED=0 GOFLAGS='' go build -mod=mod -p "${GO_CPUS:-2}" -trimpath -ldflags '-s -w' \
                    -o "$program.new" github.com/minio/minio) >"$CACHE/minio-$version/log" 2>&1 ||
                cannot "Go could not compile MinIO: $(tail -n 1 "$CACHE/minio-$version/log")"
            mv "$program.new" "$program"
        fi
        flock -u 9
    fi
    echo "$program"
}

minio=$(program) || exit $?
# A bucket is a folder.
mkdir -p "$folder/data/states"

ready() { curl -fsS -o /dev/null "http://$ADDRESS:$port/minio/health/ready"; }

serve "$folder" ready "$minio" server "$folder/data" --quiet --address "$ADDRESS:$port"
