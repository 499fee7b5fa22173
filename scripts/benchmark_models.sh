#!/usr/bin/env bash
# The compute sweep on a machine where nothing is set up: finds or installs uv, installs Synora and
# its dependencies, runs scripts/benchmark_models.py with the arguments given and returns its exit
# code. `--uv-help` explains the flags of this wrapper; the others belong to the sweep.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@" # started with sh
set -euo pipefail
set +o posix

# The real place of this file, which may be reached through symlinks (readlink -f is not everywhere).
self=${BASH_SOURCE[0]}
while [ -L "$self" ]; do
  link=$(readlink -- "$self")
  case $link in /*) self=$link ;; *) self=$(dirname -- "$self")/$link ;; esac
done
case $self in /*) ;; *) self=./$self ;; esac # a relative path may start with a dash
PROG=benchmark_models.sh
# shellcheck source=scripts/lib.sh
. "$(dirname -- "$self")/lib.sh"

uv_help() {
  cat <<HELP
Usage: bash scripts/benchmark_models.sh [WRAPPER FLAGS] [SWEEP FLAGS]

Measures the compute cost of Synora's models. Nothing needs to be set up first:
this wrapper finds uv or installs it, brings the project's environment up to
date with "uv sync --inexact" (packages you added stay), runs the sweep
(scripts/benchmark_models.py) in it and returns the sweep's exit code.

Wrapper flags, anywhere among the others:
  --no-sync             install nothing, use the environment as it is: .venv, else
                        the active one, else python3; no network, no uv
  --extra NAME          also install an optional group; repeat for several:
                        $(extra_names | wrap_words 24 60)
  --python VERSION      interpreter for the environment (3.12, or a path)
  --install-uv          where pip cannot bring uv, download and run uv's installer
  --recreate            let uv delete and rebuild an environment whose Python does
                        not fit; otherwise the wrapper stops before that
  --allow-torch-change  let the sync replace a GPU build of torch by one not known
                        to be as good (such as a CPU build); otherwise it stops
  --uv-help             this text
  --                    what follows goes to the sweep, even if it looks like one
                        of these flags

Every other argument goes to the sweep untouched; --help shows its flags.

Environment:
  UV_PROJECT_ENVIRONMENT  folder of the environment (default: .venv in the checkout)
  SYNORA_UV               the uv program to use

Offline, an environment that already holds the dependencies is used as it is.
Exit codes: those of the sweep; 2 for a mistake in the command line or a stop
that a flag lifts, 1 when the environment could not be prepared.
HELP
}

args=()
while [ $# -gt 0 ]; do
  case $1 in
    --)
      shift
      args+=("$@")
      break
      ;;
    --uv-help)
      # The only thing this wrapper ever prints on stdout.
      uv_help
      exit 0
      ;;
    -h | --help) note 'the flags of the sweep follow; --uv-help shows those of this wrapper' ;;
  esac
  take_flag "$@"
  if [ "$TAKEN" -gt 0 ]; then
    shift "$TAKEN"
  else
    args+=("$1")
    shift
  fi
done

# shellcheck disable=SC2034 # read by lib.sh
CHECK_IMPORTS=$SWEEP_IMPORTS
prepare_env
exec_in_env python "$ROOT/scripts/benchmark_models.py" ${args[@]+"${args[@]}"}
