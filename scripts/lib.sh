# shellcheck shell=bash
# Functions shared by the shell scripts of this folder: find or install uv, sync the environment
# without breaking it, run a command in it.
#
# To use it, source it from a script that has set PROG (its name in messages) and resolved its own
# symlinks:
#
#   PROG=my_script.sh
#   . "$dir/lib.sh"              # sets ROOT, the checkout; prints nothing, changes no directory
#   take_flag "$@"               # in the argument loop: reads one wrapper flag, TAKEN says how many
#   prepare_env                  # sync, or find the environment to use as it is
#   exec_in_env python x.py      # replaces the shell, so exit codes and signals are the command's
#
# Everything printed here goes to stderr: stdout belongs to the command. bash 3.2 (macOS) is enough,
# which is why empty arrays are spelled ${a[@]+"${a[@]}"} throughout.

# CDPATH would make cd print, and go elsewhere.
ROOT=$(CDPATH='' cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# shellcheck source=scripts/lib_sync.sh
. "$ROOT/scripts/lib_sync.sh"

SYNC=yes         # --no-sync: use the environment as it is
EXTRAS=()        # --extra NAME, in the order given
ALL_EXTRAS=no
PYTHON=''        # --python VERSION
INSTALL_UV=no    # --install-uv: a downloaded installer may be run
RECREATE=no      # --recreate: uv may replace the environment
TORCH_CHANGE=no  # --allow-torch-change: uv may replace a GPU build of torch
CHECK_IMPORTS='' # modules that an environment used as it is must hold
UV=''            # set: commands go through `uv run`; empty: through ENV_PYTHON directly
ENV_PYTHON=''
TAKEN=0

# What the compute sweep imports: an interpreter holding all of these can run it without uv.
# (Gymnasium and ALE are left out on purpose: the sweep measures networks, not environments.)
# shellcheck disable=SC2034 # read by the scripts
SWEEP_IMPORTS='torch numpy pydantic yaml rich tabulate psutil typer filelock safetensors synora'

note() { printf '%s: %s\n' "$PROG" "$*" >&2; }

# die STATUS MESSAGE...: one line. Status 2 is for a mistake in the command line or the settings, 1
# for work that failed.
die() {
  local status=$1
  shift
  note "error: $*"
  exit "$status"
}

# A value as it is shown in a message: on one line whatever is in it.
show() { printf '%q' "$1"; }

# ---- Arguments -----------------------------------------------------------------------------------

# Reads one wrapper flag from the front of the arguments; TAKEN is the number of words it used, 0
# when the first word is no wrapper flag.
# shellcheck disable=SC2034 # TAKEN is read by the scripts
take_flag() {
  TAKEN=1
  case $1 in
    --no-sync) SYNC=no ;;
    --install-uv) INSTALL_UV=yes ;;
    --recreate) RECREATE=yes ;;
    --allow-torch-change) TORCH_CHANGE=yes ;;
    --extra | --python)
      # A flag in place of the value is a forgotten value, not a name.
      case ${2-} in
        '' | -*) missing_value "$1" ;;
      esac
      set_flag "$1" "$2"
      TAKEN=2
      ;;
    --extra= | --python=) missing_value "${1%=}" ;;
    --extra=* | --python=*) set_flag "${1%%=*}" "${1#*=}" ;;
    *) TAKEN=0 ;;
  esac
}

set_flag() {
  if [ "$1" = --extra ]; then EXTRAS+=("$2"); else PYTHON=$2; fi
}

missing_value() {
  if [ "$1" = --extra ]; then
    die 2 "--extra needs a name: one of $(extra_names | join_words) (repeat --extra for several)"
  fi
  die 2 "--python needs a version or a path, such as --python 3.12"
}

join_words() { paste -s -d ' ' - | sed 's/ /, /g'; }

# The same, in lines of at most $2 characters, all but the first indented by $1.
wrap_words() {
  awk -v indent="$1" -v most="$2" '
    NR > 1 { word = ", " $0 } NR == 1 { word = $0 }
    used + length(word) > most { printf ",\n%" indent "s", ""; word = $0; used = 0 }
    { printf "%s", word; used += length(word) }
  '
}

# The keys of [project.optional-dependencies]. Read as text: no Python may be there yet.
extra_names() {
  awk '
    { sub(/#.*/, "") }
    !depth && /^[ \t]*\[/ { inside = ($0 ~ /^[ \t]*\[project\.optional-dependencies\][ \t]*$/); next }
    !inside { next }
    !depth && /=/ { name = $0; sub(/=.*/, "", name); gsub(/[ \t"\047]/, "", name); print name }
    { depth += gsub(/\[/, "") - gsub(/\]/, "") }
  ' "$ROOT/pyproject.toml"
}

# The name on standard input with the smallest edit distance to $1, if it is near.
closest() {
  awk -v want="$1" '
    function min(a, b) { return a < b ? a : b }
    function distance(s, t,   i, j, d) {
      for (i = 0; i <= length(s); i++) d[i, 0] = i
      for (j = 0; j <= length(t); j++) d[0, j] = j
      for (i = 1; i <= length(s); i++)
        for (j = 1; j <= length(t); j++)
          d[i, j] = min(min(d[i-1, j], d[i, j-1]) + 1,
                        d[i-1, j-1] + (substr(s, i, 1) != substr(t, j, 1)))
      return d[length(s), length(t)]
    }
    { far = distance(want, $0); if (NR == 1 || far < best) { best = far; name = $0 } }
    END { if (NR && best <= 1 + length(name) / 3) print name }
  '
}

# Stops at an extra that pyproject.toml does not define, before anything is synced.
check_extras() {
  [ "${#EXTRAS[@]}" -gt 0 ] || return 0
  local name plain names known near
  names=$(extra_names)
  for name in "${EXTRAS[@]}"; do
    # As packaging tools compare names: Foo_Bar is foo-bar.
    plain=$(printf '%s' "$name" | tr '[:upper:]_.' '[:lower:]--')
    for known in $names; do
      if [ "$known" = "$plain" ]; then continue 2; fi
    done
    near=$(printf '%s\n' "$names" | closest "${plain:0:64}")
    die 2 "unknown extra $(show "$name")${near:+, did you mean $near?}" \
      "(allowed: $(printf '%s\n' "$names" | join_words))"
  done
}

# ---- uv ------------------------------------------------------------------------------------------

# A name on PATH is not enough: a version manager's shim exists also where uv does not run.
works() { [ -n "$1" ] && "$1" --version >/dev/null 2>&1; }

# Where a uv that these scripts install is put: never into the user's own Python.
private_uv_dir() {
  local cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
  [ -n "$cache" ] && printf '%s/synora/uv' "$cache"
}

find_uv() {
  local candidate private candidates=(uv)
  if [ -n "${SYNORA_UV:-}" ]; then
    works "$SYNORA_UV" || die 2 "SYNORA_UV=$(show "$SYNORA_UV") does not run: set it to a uv" \
      "program, or unset it to have uv searched"
    UV=$SYNORA_UV
    return 0
  fi
  [ -z "${HOME:-}" ] || candidates+=("$HOME/.local/bin/uv" "$HOME/.cargo/bin/uv")
  ! private=$(private_uv_dir) || candidates+=("$private/bin/uv")
  for candidate in "${candidates[@]}"; do
    if works "$candidate"; then
      UV=$candidate
      return 0
    fi
  done
  return 1
}

# Brings uv from the package index, or, with --install-uv, with the vendor's installer.
# INSTALL_TRIED says afterwards why there is none.
install_uv() {
  local dir base staging
  INSTALL_TRIED='HOME is not set'
  dir=$(private_uv_dir) || return 1
  base=${dir%/*}
  INSTALL_TRIED="$base cannot be written"
  mkdir -p -- "$base" 2>/dev/null || return 1
  # Filled beside its place and moved there whole: two runs at once never see half a program.
  staging=$(mktemp -d "$base/uv.XXXXXX" 2>/dev/null) || return 1
  note "uv is missing: installing it into $dir (your own Python is left as it is)"
  if install_uv_with_pip "$staging" || install_uv_with_installer "$staging"; then
    if ! works "$dir/bin/uv"; then
      rm -rf -- "$dir"
      mv -- "$staging" "$dir" 2>/dev/null || true
    fi
    if works "$dir/bin/uv"; then
      rm -rf -- "$staging"
      UV=$dir/bin/uv
      return 0
    fi
    INSTALL_TRIED="the uv installed in $dir does not run"
  fi
  rm -rf -- "$staging"
  return 1
}

# `--target` works where a plain `pip install` is refused (a system Python managed by Debian, a
# PIP_REQUIRE_VIRTUALENV setting) and in any active venv without touching it. A Python whose pip is
# missing may still have venv, which brings its own.
install_uv_with_pip() {
  local into=$1 python log
  INSTALL_TRIED='there is no python3 to install it with'
  for python in python3 python; do
    "$python" -c '' >/dev/null 2>&1 || continue
    if log=$(PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 "$python" -m pip install --quiet \
      --disable-pip-version-check --no-input --target "$into" uv 2>&1) && works "$into/bin/uv"; then
      return 0
    fi
    INSTALL_TRIED="$python -m pip install uv: $(last_line "$log")"
    if "$python" -m venv "$into/venv" >/dev/null 2>&1 &&
      log=$(PIP_USER=0 "$into/venv/bin/python" -m pip install --quiet \
        --disable-pip-version-check --no-input --target "$into" uv 2>&1) && works "$into/bin/uv"; then
      return 0
    fi
  done
  return 1
}

last_line() { printf '%s\n' "$1" | awk 'NF { line = $0 } END { print line ? line : "no message" }'; }

# Never without --install-uv: running a downloaded script is the user's decision.
install_uv_with_installer() {
  [ "$INSTALL_UV" = yes ] || return 1
  local into=$1 url=https://astral.sh/uv/install.sh
  note "running uv's installer, $url"
  # Saved first, so that a broken download is never run in part.
  if ! { curl -LsSf -o "$into/install.sh" -- "$url" || wget -qO "$into/install.sh" "$url"; } >&2; then
    INSTALL_TRIED="$INSTALL_TRIED; $url could not be downloaded"
    return 1
  fi
  # "Unmanaged": into this folder, without a change to shell profiles.
  if UV_UNMANAGED_INSTALL="$into/bin" sh "$into/install.sh" >&2 && works "$into/bin/uv"; then
    return 0
  fi
  INSTALL_TRIED="$INSTALL_TRIED; uv's installer failed"
  return 1
}

# uv takes the project's environment; another active one would only make it warn at every call.
run_uv() (
  unset VIRTUAL_ENV
  exec "$UV" "$@"
)

# ---- The project's environment -------------------------------------------------------------------

env_dir() {
  case ${UV_PROJECT_ENVIRONMENT:-} in
    '') printf '%s/.venv' "$ROOT" ;;
    /* | [A-Za-z]:[/\\]*) printf '%s' "$UV_PROJECT_ENVIRONMENT" ;;
    *) printf '%s/%s' "$ROOT" "$UV_PROJECT_ENVIRONMENT" ;; # uv reads it so: from the project
  esac
}

# The interpreter of the environment in folder $1; fails when there is none that can be started.
python_of() {
  local python
  for python in "$1/bin/python" "$1/bin/python3" "$1/Scripts/python.exe" "$1/python.exe"; do
    if [ -x "$python" ]; then
      printf '%s' "$python"
      return 0
    fi
  done
  return 1
}

# Every interpreter that could serve, one a line, the project's own first.
candidate_pythons() {
  local dir python
  for dir in "$(env_dir)" "${VIRTUAL_ENV:-}" "${CONDA_PREFIX:-}"; do
    [ -n "$dir" ] && python_of "$dir" && printf '\n'
  done
  for python in python3 python; do
    command -v "$python" || true
  done
}

# Prints what interpreter $1 lacks of the modules in $2. With `import` in $3 they are imported for
# real (seconds, for torch), else only located.
lacking() {
  PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH} "$1" - "$2" "${3:-}" <<'PYTHON' 2>/dev/null || printf 'a Python that starts'
import importlib, importlib.util, sys
# The current directory is the user's: a folder there named torch is not torch.
sys.path = [entry for entry in sys.path if entry]
missing, answer, sys.stdout = [], sys.stdout, sys.stderr
if sys.version_info < (3, 11):
    missing.append("Python 3.11 or newer")
for name in sys.argv[1].split():
    try:
        if sys.argv[2]:
            importlib.import_module(name)
        elif importlib.util.find_spec(name) is None:
            missing.append(name)
    except Exception:
        missing.append(name)
answer.write(", ".join(missing))
PYTHON
}

# uv is of no use (missing, or no network): run with an interpreter that has what is needed.
fall_back() {
  local why=$1 python
  if [ -n "$PYTHON" ]; then
    die 1 "$why, so --python $(show "$PYTHON") cannot be provided: install uv or connect, or drop --python"
  fi
  while IFS= read -r python; do
    if [ -z "$(lacking "$python" "$CHECK_IMPORTS" import)" ]; then
      note "$why: using $python as it is"
      [ "${#EXTRAS[@]}" -eq 0 ] || note "not installed for the same reason: ${EXTRAS[*]}"
      UV='' ENV_PYTHON=$python
      return 0
    fi
  done < <(candidate_pythons)
  die 1 "$why, and no Python found here imports what Synora needs (${CHECK_IMPORTS// /, }):" \
    "connect to the network$([ "$INSTALL_UV" = yes ] || printf ', pass --install-uv') or activate an" \
    "environment with these packages"
}

# --no-sync: nothing is installed, nothing is downloaded, uv is not even looked for.
use_env_as_it_is() {
  local python='' dir lacks
  dir=$(env_dir)
  if [ -n "$PYTHON" ]; then
    # A version would ask uv to choose, perhaps to rebuild the environment: what --no-sync excludes.
    if [ ! -f "$PYTHON" ] || [ ! -x "$PYTHON" ]; then
      die 2 "with --no-sync, --python takes the path of an interpreter, not $(show "$PYTHON"):" \
        "give a path, or drop one of the two flags"
    fi
    case $PYTHON in */*) python=$PYTHON ;; *) python=./$PYTHON ;; esac
  elif [ -n "${UV_PROJECT_ENVIRONMENT:-}" ]; then
    python=$(python_of "$dir") ||
      die 2 "UV_PROJECT_ENVIRONMENT=$(show "$UV_PROJECT_ENVIRONMENT") holds no Python: correct it," \
        "or drop --no-sync to have it created"
  else
    IFS= read -r python < <(candidate_pythons) || true
    [ -n "$python" ] || die 1 "there is no Python to run with: drop --no-sync to have one set up"
  fi
  [ "${#EXTRAS[@]}" -eq 0 ] || note "--no-sync: --extra ${EXTRAS[*]} is not installed"
  if [ -n "$CHECK_IMPORTS" ]; then
    lacks=$(lacking "$python" "$CHECK_IMPORTS")
    [ -z "$lacks" ] || die 1 "--no-sync: $python lacks $lacks: drop --no-sync to have it installed," \
      "or name another environment with UV_PROJECT_ENVIRONMENT"
    note "--no-sync: using $python$(other_env_hint "$python")"
  fi
  UV='' ENV_PYTHON=$python
}

other_env_hint() {
  [ -n "${VIRTUAL_ENV:-}" ] || return 0
  case $1 in
    "$VIRTUAL_ENV"/*) ;;
    *) printf ' (not the active %s: set UV_PROJECT_ENVIRONMENT to it to use that)' "$VIRTUAL_ENV" ;;
  esac
}

# ---- Running -------------------------------------------------------------------------------------

# Replaces the shell by the command: its exit code and the signals sent to us are its own.
exec_in_env() {
  if [ -n "$UV" ]; then
    # The command may want uv too (`uv export`), and a private one is not on PATH.
    case $UV in */*) export PATH=$PATH:${UV%/*} ;; esac
    unset VIRTUAL_ENV
    exec "$UV" run --no-sync ${PYTHON:+--python "$PYTHON"} --project "$ROOT" "$@"
  fi
  # The checkout's own code, also where Synora is not installed.
  export PYTHONPATH=$ROOT${PYTHONPATH:+:$PYTHONPATH}
  if [ "$1" = python ]; then
    shift
    exec "$ENV_PYTHON" "$@"
  fi
  ! find_uv || case $UV in */*) PATH=$PATH:${UV%/*} ;; esac
  export PATH=${ENV_PYTHON%/*}:$PATH
  command -v -- "$1" >/dev/null ||
    die 1 "$(show "$1") is not in the environment of $ENV_PYTHON: sync it first (bash scripts/env.sh --all-extras)"
  exec "$@"
}
