#!/usr/bin/env bash
# Starts this run. README.md says what it trains; the files beside this script hold every value that it uses.
#
#   global batch   528 = 6 sequences x 11 accumulation x 8 processes
#   processes      8 = 1 node x 8
#   strategy       zero2, bf16, on 8 x h100-80gb
#   target         trl-1.16
#
#   ./launch.sh               train, or go on from the newest complete checkpoint
#   ./launch.sh --preflight   check this machine against the bundle, and stop
#   ./launch.sh --dry-run     print the command, and stop
#   ./launch.sh --stage DIR   fetch what the run reads from the hub, for machines without a network
#
# PYTHON names the interpreter (default: python3), XPC_STAGED a folder that --stage has filled. MASTER_PORT names the port.
# Nothing else is accepted.
if [ -z "${BASH_VERSION:-}" ]; then
  echo "launch.sh: this is a script for bash: bash launch.sh" >&2
  exit 2
fi
set -euo pipefail

script=$(readlink -f -- "${BASH_SOURCE[0]}")
here=${script%/*}
python=${PYTHON:-python3}
dry_run=false
only_preflight=false
only_stage=false

if [ "${1:-}" != --stage ] && [ "$#" -gt 1 ]; then
  echo "launch.sh: one argument at most; what is trained is decided by the bundle, not by flags" >&2
  exit 2
fi
case "${1:-}" in
  "") ;;
  --dry-run) dry_run=true ;;
  --preflight) only_preflight=true ;;
  --stage) only_stage=true ;;
  *)
    printf 'launch.sh: unknown argument %q; only --dry-run, --preflight and --stage are accepted\n' "$1" >&2
    exit 2
    ;;
esac

# Models, tokenizers and rows into a folder, --wheels for the packages, too: ./launch.sh --stage DIR [--wheels]
if [ "$only_stage" = true ]; then
  exec "$python" "$here/stage.py" "${@:2}"
fi

number() {
  case "$2" in
    *[!0-9]* | "")
      printf 'launch.sh: %s must be a number, not %q\n' "$1" "$2" >&2
      exit 2
      ;;
  esac
}

# Times that a run is started again whose process has died, from its newest checkpoint; not one that says what is wrong.
export XPC_RETRIES="${XPC_RETRIES:-3}"
number XPC_RETRIES "$XPC_RETRIES"

port=${MASTER_PORT:-0}
number MASTER_PORT "$port"

command=(
  "$python" "$here/trainer/launcher.py" accelerate.commands.launch
  --config_file "$here/accelerate.yaml"
  --main_process_port "$port"
  "$here/trainer/main.py"
)

if [ "$dry_run" = true ]; then
  printf '%q ' "${command[@]}"
  printf '\n'
  exit 0
fi
if ! command -v "$python" >/dev/null; then
  printf '%s: there is no program %q; PYTHON names the interpreter of the run\n' "${script##*/}" "$python" >&2
  exit 2
fi

# A folder that launch.sh --stage has filled: models and rows are read from there, and no hub is asked.
if [ -n "${XPC_STAGED:-}" ]; then
  "$python" "$here/stage.py" "$XPC_STAGED" --missing
  XPC_STAGED=$(readlink -f -- "$XPC_STAGED")
  export XPC_STAGED HF_HUB_CACHE="$XPC_STAGED/hub" HF_HUB_OFFLINE=1
  unset TRANSFORMERS_CACHE # which transformers before 5 prefers
fi

# All checks in one plain process; the launcher makes those before a launch itself.
if [ "$only_preflight" = true ]; then
  exec "$python" "$here/trainer/main.py" --preflight
fi
exec "${command[@]}"
