#!/bin/sh
# Makes the certificates that the tests use. They protect nothing: their keys are public.
# Run it here, with OpenSSL 3, should they ever have to be made anew. They are valid from 2020 to 2120.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OPENSSL_CONF="$work/config"
cat > "$OPENSSL_CONF" <<CONFIG
[req]
distinguished_name = name
[name]
[ca]
default_ca = here
[here]
new_certs_dir = $work
database = $work/index
rand_serial = yes
default_md = sha256
policy = anything
copy_extensions = copy
[anything]
commonName = supplied
CONFIG
: > "$work/index"

key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out "$1.key"; }

# sign NAME FROM TO EXTENSION...: a certificate for NAME.key by the authority
sign() {
    name=$1 from=$2 to=$3
    shift 3
    key "$name"
    openssl req -new -key "$name.key" -subj "/CN=$name" "$@" -out "$work/request"
    openssl ca -batch -notext -cert authority.pem -keyfile authority.key -startdate "$from" -enddate "$to" \
        -in "$work/request" -out "$name.pem" 2> /dev/null
}

key authority
openssl req -new -key authority.key -subj "/CN=authority of the tests" -addext basicConstraints=critical,CA:TRUE \
    -addext keyUsage=critical,keyCertSign -out "$work/request"
openssl ca -batch -notext -selfsign -keyfile authority.key -startdate 20200101000000Z -enddate 21200101000000Z \
    -in "$work/request" -out authority.pem 2> /dev/null
here=subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1
sign server 20200101000000Z 21200101000000Z -addext "$here"
sign renewed 20200101000000Z 21200101000000Z -addext "$here"
sign client 20200101000000Z 21200101000000Z -addext extendedKeyUsage=clientAuth
sign expired 20200101000000Z 20210101000000Z -addext "$here"
sign future 21100101000000Z 21200101000000Z -addext "$here"
openssl pkey -in server.key -aes256 -passout pass:tests -out encrypted.key
openssl x509 -in server.pem -outform DER -out server.der
