#!/usr/bin/env bash
# A stand-in for the CUDA base image, for machines that can pull no image: Debian 12 from its package
# mirror, imported into Docker. It has no CUDA; torch brings its own libraries, and without a GPU
# everything else of the Dockerfile is built and run as it is on the real base.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # started with sh
set -euo pipefail

PROG=local_base.sh
dir=$(CDPATH='' cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source=containers/lib.sh
. "$dir/lib.sh"

NAME=synora-local-base
SUITE=bookworm
MIRROR=''
CERTIFICATES=/etc/ssl/certs/ca-certificates.crt
FORCE=no

usage() {
  cat <<HELP
Usage: bash containers/local_base.sh [FLAGS]

Makes the image $NAME (270 MB, under a minute), to build the real one on:

  bash containers/local_base.sh
  make image BASE_IMAGE=$NAME

  --name NAME      of the image (default: $NAME)
  --suite SUITE    Debian release (default: $SUITE, which has Python 3.11)
  --mirror URL     package mirror (default: debootstrap's own)
  --force          make it again where it exists
  --help           this text

Needs root, docker and debootstrap. This machine's certificate authorities are
copied into the image, so that a build behind a company's proxy works too.
HELP
}

while [ $# -gt 0 ]; do
  case $1 in
    --name) need_value "$@" && NAME=$2 && shift 2 ;;
    --suite) need_value "$@" && SUITE=$2 && shift 2 ;;
    --mirror) need_value "$@" && MIRROR=$2 && shift 2 ;;
    --force) FORCE=yes && shift ;;
    -h | --help) usage && exit 0 ;;
    *) die 2 "unknown argument $(show "$1"): see --help" ;;
  esac
done

need_program docker "apt-get install docker.io"
need_daemon docker
if [ "$FORCE" = no ] && docker image inspect "$NAME" >/dev/null 2>&1; then
  note "$NAME is there already (--force makes it again)"
  exit 0
fi
need_program debootstrap "apt-get install debootstrap"
[ "$(id -u)" -eq 0 ] || die 1 "debootstrap needs root: run this with sudo"

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
note "installing Debian $SUITE into a folder (about half a minute)"
if ! debootstrap --variant=minbase --include=ca-certificates,python3 \
  "$SUITE" "$work/root" ${MIRROR:+"$MIRROR"} >"$work/log" 2>&1; then
  tail -n 5 -- "$work/log" >&2
  die 1 "debootstrap failed (its last lines are above)"
fi
rm -rf -- "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/*
if [ -r "$CERTIFICATES" ]; then
  cp -- "$CERTIFICATES" "$work/root$CERTIFICATES"
fi
# pip reads its own list of authorities unless told; these settings stay in the image built on it.
tar -C "$work/root" -c . | docker import \
  --change "ENV SSL_CERT_FILE=$CERTIFICATES PIP_CERT=$CERTIFICATES REQUESTS_CA_BUNDLE=$CERTIFICATES" \
  --change "CMD [\"bash\"]" \
  - "$NAME" >/dev/null
note "made $NAME"
