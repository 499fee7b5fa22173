#!/usr/bin/env bash
# Runs a command in the project's environment, which is synced first. The Makefile and pre-commit
# work through it, so that they find or install uv as benchmark_models.sh does.
#
#   bash scripts/env.sh [FLAGS] [--] [COMMAND [ARGUMENTS]]
#
# FLAGS are the wrapper flags of benchmark_models.sh (its --uv-help) and --all-extras; without a
# command it only syncs.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # started with sh
set -euo pipefail
set +o posix

self=${BASH_SOURCE[0]}
while [ -L "$self" ]; do
  link=$(readlink -- "$self")
  case $link in /*) self=$link ;; *) self=$(dirname -- "$self")/$link ;; esac
done
case $self in /*) ;; *) self=./$self ;; esac # a relative path may start with a dash
PROG=env.sh
# shellcheck source=scripts/lib.sh
. "$(dirname -- "$self")/lib.sh"

while [ $# -gt 0 ]; do
  case $1 in
    --)
      shift
      break
      ;;
    --all-extras) ALL_EXTRAS=yes && shift ;;
    -*)
      take_flag "$@"
      [ "$TAKEN" -gt 0 ] || die 2 "unknown flag $(show "$1") (allowed: --all-extras, --extra NAME," \
        "--python VERSION, --no-sync, --install-uv, --recreate, --allow-torch-change)"
      shift "$TAKEN"
      ;;
    *) break ;;
  esac
done

prepare_env
if [ $# -gt 0 ]; then
  exec_in_env "$@"
fi
