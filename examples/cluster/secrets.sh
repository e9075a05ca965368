#!/bin/sh
# Creates the secrets of a cluster: secrets.sh [FOLDER [NAME]]
#
# FOLDER (default: secrets) has one folder for each kind of container. Secrets that exist stay as they are. Store a copy of
# ostler/vault.key elsewhere: without it, the secrets in the database cannot be read.
#
# NAME (default: localhost) is the name by which clients reach the balancer. Its certificate is signed by a private authority
# (ostler/authority.pem), which clients have to trust; replace balancer/tls.pem with a certificate of a public authority and
# its key. As root, the script gives the files to the users of the containers.
set -eu
umask 077
folder=${1:-secrets}
name=${2:-localhost}
mkdir -p "$folder/ostler" "$folder/postgres" "$folder/balancer"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A file exists with its whole content or not at all.
put() {
    cat >"$1.new"
    mv "$1.new" "$1"
}
secret() {
    [ -s "$1" ] || "$2" | put "$1"
}
token() {
    od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n'
}
key() {
    head -c 32 /dev/urandom | base64
}

secret "$folder/ostler/token" token
secret "$folder/ostler/cluster.token" token
secret "$folder/ostler/database.password" token
secret "$folder/ostler/vault.key" key
put "$folder/postgres/password" <"$folder/ostler/database.password"

certificate() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" \
        -keyout "$work/$1.key" -out "$work/$1.csr"
    printf 'basicConstraints=CA:FALSE\nsubjectAltName=%s\nextendedKeyUsage=serverAuth\n' "$2" >"$work/$1.ext"
    openssl x509 -req -in "$work/$1.csr" -days "$3" -CA "$work/authority.pem" -CAkey "$work/authority.key" \
        -CAcreateserial -extfile "$work/$1.ext" -out "$work/$1.pem"
}
if ! [ -s "$folder/ostler/authority.pem" ]; then
    # The key of the authority is not retained: to replace a certificate, remove authority.pem and start all containers again.
    {
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
            -subj '/CN=Authority of an ostler cluster' -keyout "$work/authority.key" -out "$work/authority.pem"
        certificate postgres DNS:postgres,DNS:localhost 3650
        certificate "$name" "DNS:$name" 800
    } 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
    put "$folder/postgres/server.crt" <"$work/postgres.pem"
    put "$folder/postgres/server.key" <"$work/postgres.key"
    cat "$work/$name.pem" "$work/$name.key" | put "$folder/balancer/tls.pem"
    put "$folder/ostler/authority.pem" <"$work/authority.pem"
fi

if [ "$(id -u)" = 0 ]; then
    chown -R 990:990 "$folder/ostler"
    chown -R 999:999 "$folder/postgres"
    chown -R 99:99 "$folder/balancer"
fi
