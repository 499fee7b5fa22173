# shellcheck shell=bash
# Bringing the project's environment up to date without losing what is in it: uv is asked what it
# would do, and the sync stops before it deletes an environment or takes a GPU build of torch away.
# Part of lib.sh, which sources it and says how to use it.

# --inexact: packages that the project does not mention stay. A plain `uv sync` would remove them.
sync_args() {
  SYNC_ARGS=(--inexact)
  local name
  [ "$ALL_EXTRAS" = no ] || SYNC_ARGS+=(--all-extras)
  for name in ${EXTRAS[@]+"${EXTRAS[@]}"}; do SYNC_ARGS+=(--extra "$name"); done
  [ -z "$PYTHON" ] || SYNC_ARGS+=(--python "$PYTHON")
  SYNC_ARGS+=(--project "$ROOT")
}

prepare_env() {
  # Without it uv would go up the folders and sync whatever project it meets there.
  [ -f "$ROOT/pyproject.toml" ] || die 1 "there is no pyproject.toml in $ROOT: run this from a whole checkout of Synora"
  check_extras
  if [ "$SYNC" = no ]; then
    use_env_as_it_is
    return 0
  fi
  if ! { find_uv || install_uv; }; then
    fall_back "uv is missing and could not be installed ($INSTALL_TRIED)"
    return 0
  fi
  sync_env
}

sync_env() {
  local dir log status=0 plan=''
  dir=$(env_dir)
  sync_args
  if python_of "$dir" >/dev/null || [ -e "$dir/pyvenv.cfg" ]; then
    # uv itself is asked what it would do: only it knows whether the interpreter fits.
    plan=$(run_uv sync "${SYNC_ARGS[@]}" --dry-run --color never 2>&1 >/dev/null) || status=$?
    if [ "$status" -ne 0 ]; then
      printf '%s\n' "$plan" >&2
      sync_failed "$status" "$plan"
      return 0
    fi
    check_plan "$dir" "$plan"
  else
    note "setting up $dir: the first time takes some minutes and some GB (torch)"
  fi
  case $plan in
    *'Would make no changes'*) # nothing worth reading, unless it fails after all
      log=$(run_uv sync "${SYNC_ARGS[@]}" 2>&1 >/dev/null) || { status=$? && printf '%s\n' "$log" >&2; } ;;
    *)
      # Shown as it comes, and kept: the reason of a failure decides what happens next.
      log=$(run_uv sync "${SYNC_ARGS[@]}" 2>&1 >/dev/null | show_and_keep) || status=$? ;;
  esac
  [ "$status" -eq 0 ] || sync_failed "$status" "$log"
}

# (tee /dev/stderr would truncate a log file that stderr is redirected to.)
show_and_keep() {
  local line
  while IFS= read -r line || [ -n "$line" ]; do
    printf '%s\n' "$line" >&2
    printf '%s\n' "$line"
  done
}

# uv's own message stands above; this says what to do about it.
sync_failed() {
  local status=$1 log=$2
  [ "$status" -lt 128 ] || exit "$status" # interrupted
  if matches "$log" 'error sending request|dns error|tcp connect error|tunnel error|network was disabled|[Nn]etwork is unreachable|[Oo]peration timed out|[Cc]onnection (refused|reset)'; then
    fall_back 'uv could not reach the package index'
    return 0
  fi
  if matches "$log" "unexpected argument '--dry-run'"; then
    die 1 "$UV is too old to say what a sync would change: upgrade it (uv self update), or pass" \
      "--no-sync to use the environment as it is"
  fi
  if [ -n "$PYTHON" ] && matches "$log" 'No interpreter found|Failed to inspect Python|incompatible with the project'; then
    die 2 "--python $(show "$PYTHON") cannot be used (see uv's message above): give a version in" \
      "$(sed -n 's/^requires-python *= *"\(.*\)".*/\1/p' "$ROOT/pyproject.toml") that is installed, or the path of an interpreter"
  fi
  if matches "$log" 'is not a valid Python environment'; then
    die 2 "$(env_dir) is no Python environment: remove that folder, or name another with UV_PROJECT_ENVIRONMENT"
  fi
  die 1 "uv sync failed (exit $status, see its message above): correct that and run again, or pass" \
    "--no-sync to use the environment as it is"
}

matches() { printf '%s\n' "$1" | grep -Eq -- "$2"; }

# Stops before a sync that would destroy what cannot easily be got back.
check_plan() {
  local dir=$1 plan=$2 replaces=no
  if [ "$RECREATE" = yes ] && [ "$TORCH_CHANGE" = yes ]; then return 0; fi
  matches "$plan" '^ *Would ' ||
    die 1 "what uv would change in $dir cannot be read from its output: pass --no-sync to use it as" \
      "it is, or --recreate --allow-torch-change to sync all the same"
  if matches "$plan" '^ *Would (replace|remove|re-?create) .*environment'; then
    replaces=yes
    [ "$RECREATE" = yes ] ||
      die 2 "uv would delete $dir and build it anew, since its Python does not fit${PYTHON:+ --python $(show "$PYTHON")}:" \
        "pass --recreate to allow that, or --no-sync to use it as it is"
  fi
  [ "$TORCH_CHANGE" = yes ] || check_torch "$dir" "$plan" "$replaces"
}

# ---- torch ---------------------------------------------------------------------------------------

# Stops when the plan takes a GPU build of torch away and brings none that is known to do the same.
check_torch() {
  local dir=$1 plan=$2 replaces=$3 incoming outgoing
  incoming=$(planned_torch "$plan" '+~')
  outgoing=$(planned_torch "$plan" '-~')
  if [ -z "$outgoing" ] && [ -z "$incoming" ] && [ "$replaces" = no ]; then return 0; fi
  installed_torch "$dir"
  [ -n "$TORCH_BUILD" ] || return 0
  ! torch_fits "$incoming" || return 0
  die 2 "the sync would replace torch ${TORCH_VERSION} (a GPU build, $TORCH_BUILD) in $dir by" \
    "${incoming:+torch }${incoming:-none}, not known to drive the same GPU: pass --no-sync to keep it," \
    "or --allow-torch-change to let it go"
}

# The version on the plan's torch line that starts with one of the signs in $2.
planned_torch() { printf '%s\n' "$1" | sed -n "s/^ *[$2] torch==\([^ ]*\).*/\1/p" | head -n 1; }

# Sets TORCH_VERSION, TORCH_LABEL (the part after +) and TORCH_BUILD (cu126, rocm6.2, xpu; empty for
# a CPU build or no torch) of the environment in folder $1. From files: importing torch takes seconds.
installed_torch() {
  local site file
  TORCH_VERSION='' TORCH_LABEL='' TORCH_BUILD=''
  for site in "$1"/lib/python*/site-packages "$1"/Lib/site-packages; do
    [ -f "$site/torch/version.py" ] || continue
    # The metadata's name decides: it is what uv compares. A wheel of the default index is 2.9.0
    # there, and calls itself 2.9.0+cu128 in version.py.
    for file in "$site"/torch-*.dist-info "$site"/torch-*.egg-info; do
      [ -e "$file" ] || continue
      file=${file##*/torch-}
      TORCH_VERSION=${file%.*-info}
      TORCH_VERSION=${TORCH_VERSION%-py*}
    done
    file=$site/torch/version.py
    [ -n "$TORCH_VERSION" ] || TORCH_VERSION=$(assigned __version__ "$file")
    case $TORCH_VERSION in *+*) TORCH_LABEL=${TORCH_VERSION#*+} ;; esac
    case $TORCH_LABEL in
      cu* | rocm* | xpu*) TORCH_BUILD=$TORCH_LABEL ;;
      *)
        TORCH_BUILD=$(assigned cuda "$file" | tr -d .)
        TORCH_BUILD=${TORCH_BUILD:+cu$TORCH_BUILD}
        [ -n "$TORCH_BUILD" ] || TORCH_BUILD=$(assigned hip "$file" | sed 's/^./rocm&/')
        [ -n "$TORCH_BUILD" ] || TORCH_BUILD=$(assigned xpu "$file" | sed 's/^./xpu&/')
        ;;
    esac
    return 0
  done
}

# The string assigned to the name $1 in file $2: `cuda: Optional[str] = '12.8'`.
assigned() { sed -n "s/^$1\(:[^=]*\)\{0,1\} *= *['\"]\([^'\"]*\)['\"].*/\2/p" "$2" | head -n 1; }

# Whether torch version $1 surely replaces the installed GPU build.
torch_fits() {
  local label=''
  [ -n "$1" ] || return 1
  case $1 in *+*) label=${1#*+} ;; esac
  # A labelled build came from an index of its own: only the same label is sure to be like it.
  if [ -n "$TORCH_LABEL" ]; then
    [ "$label" = "$TORCH_LABEL" ]
    return
  fi
  case $TORCH_BUILD/$label in
    # The default index serves CUDA builds without a label for this platform only; elsewhere an
    # unlabelled torch may be a CPU build.
    cu*/) [ "$(uname -s)/$(uname -m)" = Linux/x86_64 ] ;;
    cu*/cu*) [ "${label#cu}" -ge "${TORCH_BUILD#cu}" ] 2>/dev/null ;;
    *) return 1 ;;
  esac
}
