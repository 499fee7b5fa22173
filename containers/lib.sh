# shellcheck shell=bash
# Functions shared by the scripts of this folder. Sourced, after PROG (the script's name in messages)
# is set; everything printed here goes to stderr.

# The checkout. CDPATH would make cd print, and go elsewhere.
# shellcheck disable=SC2034 # read by the scripts
ROOT=$(CDPATH='' cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

note() { printf '%s: %s\n' "$PROG" "$*" >&2; }

# die STATUS MESSAGE...: one line. Status 2 is for a mistake in the command line, 1 for work that failed.
die() {
  local status=$1
  shift
  note "error: $*"
  exit "$status"
}

# A value as it is shown in a message: on one line whatever is in it.
show() { printf '%q' "$1"; }

# need_value FLAG VALUE...: stops where a flag's value was forgotten.
need_value() {
  case ${2-} in
    '' | --*) die 2 "$1 needs a value: see --help" ;;
  esac
}

# need_program NAME HOW: stops where a program is not installed.
need_program() {
  command -v -- "$1" >/dev/null || die 1 "$1 is not installed: $2"
}

# The engine's own words say whether it is off or only forbidden. (podman has no daemon to reach.)
need_daemon() {
  local words
  words=$("$1" version 2>&1 >/dev/null) ||
    die 1 "$1 does not answer ($(printf '%s\n' "$words" | tail -n 1)): start it, or ask to be let use it"
}
