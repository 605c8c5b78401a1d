#!/bin/sh
# Runs the program `binary` beside the link that this was started by, as on a machine of its own
# where names: its resolver, and whom it trusts, are files beside that link as well.
set -eu
here=$(dirname "$0")
export SSL_CERT_FILE="$here/certificate.pem"
exec unshare --mount sh -euc '
here=$1
shift
mount --bind "$here/resolv.conf" /etc/resolv.conf
mount --bind "$here/nsswitch.conf" /etc/nsswitch.conf
exec "$here/binary" "$@"' sh "$here" "$@"
