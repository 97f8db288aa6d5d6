#!/usr/bin/env bash
# Starts this run. README.md describes it; the files next to this script contain every value that it uses.
#
#   global batch   64 = 4 pairs x 2 accumulation x 8 processes
#   processes      8 = 2 nodes x 4
#   strategy       fsdp, bf16, on 4 x h100-80gb
#   target         trl-1.16
#
#   ./launch.sh                          train, or resume from the newest complete checkpoint
#   ./launch.sh --preflight              check this machine against the bundle, and stop
#   ./launch.sh --rehearse               first train two steps, with a save and a resume, in a folder of their own
#   ./launch.sh --dry-run                print the command, and stop
#   ./launch.sh --stage DIR [--wheels]   fetch models and rows (and packages) for machines without a network
#   ./launch.sh --prepare DIR            convert, tokenize and pack the rows once, without a GPU
#   ./launch.sh --help                   print this, and stop
#
# It takes no other arguments. Read from the environment:
#
#   PYTHON               the interpreter of the run (python3)
#   XPC_STAGED           a folder filled by --stage: models and rows are read from it instead of the hub
#   XPC_PREPARED         a folder filled by --prepare: prepared rows of this run are read from it
#   XPC_REHEARSE         if set, every launch rehearses first, as with --rehearse
#   XPC_DATA_ROOT        the first place to look for data files and model folders that are not in the bundle
#   XPC_RETRIES          how often a run that has lost a process is restarted (3)
#   NODE_RANK            the number of this node, 0 to 1
#   MASTER_ADDR          the address of node 0, a host name or an IP address
#   MASTER_PORT          a free port of node 0
#   XPC_NODE_WAIT        seconds that the nodes wait for each other (300)
#   PYTORCH_ALLOC_CONF   settings of torch's GPU allocator (expandable_segments:True)
#
# Exit status: 0 trained, now or before; 1 an error, with a message; 2 wrong usage; 75 stopped on request (a signal or
# Ctrl-C) after saving; 130 Ctrl-C twice; 76, 128 and more: a process, or something that it needs, was lost. After 75,
# 76, 128 and more the same command resumes.
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
only_prepare=false
rehearse=false
only_stage=false

if [ "${1:-}" != --prepare ] && [ "${1:-}" != --stage ] && [ "$#" -gt 1 ]; then
  echo "launch.sh: at most one argument; the bundle decides what is trained, not flags" >&2
  exit 2
fi
case "${1:-}" in
  "") ;;
  --dry-run) dry_run=true ;;
  --preflight) only_preflight=true ;;
  --prepare) only_prepare=true ;;
  --rehearse) rehearse=true ;;
  --stage) only_stage=true ;;
  --help | -h)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script" # the lines above
    exit 0
    ;;
  *)
    printf 'launch.sh: unknown argument %q; only %s accepted\n' "$1" \
      '--dry-run, --preflight, --prepare, --rehearse, --stage and --help are' >&2
    exit 2
    ;;
esac

if [ "$only_stage" = true ]; then
  exec "$python" "$here/stage.py" "${@:2}"
fi
if [ "$only_prepare" = true ]; then
  exec "$python" "$here/prepare_rows.py" "${@:2}"
fi
if [ "$rehearse" = true ] || { [ -n "${XPC_REHEARSE:-}" ] && [ "$#" -eq 0 ]; }; then
  exec "$python" "$here/rehearse.py"
fi

# The launcher below gives the ranks; those of the shell that starts this script belong to something else. With
# PYTHONOPTIMIZE, libraries fail that use their docstrings.
unset RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME
unset TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS PYTHONOPTIMIZE

number() {
  case "$2" in
    *[!0-9]* | "")
      printf 'launch.sh: %s must be a number, not %q\n' "$1" "$2" >&2
      exit 2
      ;;
  esac
}
if [ -n "${OMP_NUM_THREADS:-}" ]; then
  number OMP_NUM_THREADS "$OMP_NUM_THREADS"
fi

# How often a run is restarted from its newest checkpoint after a process died. A run that reports an error is not.
export XPC_RETRIES="${XPC_RETRIES:-3}"
number XPC_RETRIES "$XPC_RETRIES"

# 2 machines: the same script runs on each, with its own NODE_RANK.
: "${NODE_RANK:?this run has 2 nodes: set NODE_RANK (0 to 1), MASTER_ADDR and MASTER_PORT}"
: "${MASTER_ADDR:?this run has 2 nodes: set MASTER_ADDR to the address of node 0}"
: "${MASTER_PORT:?this run has 2 nodes: set MASTER_PORT to a free port of node 0}"
number NODE_RANK "$NODE_RANK"
if [ "${#NODE_RANK}" -gt 9 ] || [ "$NODE_RANK" -gt 1 ]; then
  printf 'launch.sh: NODE_RANK must be 0 to 1, not %q\n' "$NODE_RANK" >&2
  exit 2
fi
case "$MASTER_ADDR" in
  -* | *[!0-9A-Za-z.:_-]*)
    printf 'launch.sh: MASTER_ADDR must be a host, not %q\n' "$MASTER_ADDR" >&2
    exit 2
    ;;
esac
# Seconds that the nodes wait for each other, in the preflight and at the start of the run.
wait=${XPC_NODE_WAIT:-300}
number XPC_NODE_WAIT "$wait"

port=${MASTER_PORT:-}
number MASTER_PORT "$port"
if [ "${#port}" -gt 9 ] || [ "$port" -gt 65535 ]; then
  printf 'launch.sh: MASTER_PORT must be at most 65535, not %q\n' "$port" >&2
  exit 2
fi

# Growing segments leave fewer gaps in a GPU's memory if the rows have many lengths.
if [ -z "${PYTORCH_ALLOC_CONF:-}${PYTORCH_CUDA_ALLOC_CONF:-}" ]; then
    export PYTORCH_ALLOC_CONF=expandable_segments:True
fi

command=(
  "$python" "$here/trainer/launcher.py" accelerate.commands.launch
  --config_file "$here/accelerate.yaml"
  --main_process_port "$port"
  --machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR"
  --rdzv_conf "timeout=$wait"
  "$here/trainer/main.py"
)

if [ "$dry_run" = true ]; then
  printf '%q ' "${command[@]}"
  printf '\n'
  exit 0
fi
if ! command -v "$python" >/dev/null; then
  printf '%s: no program %q; set PYTHON to the interpreter of the run\n' "${script##*/}" "$python" >&2
  exit 2
fi

# A folder filled by launch.sh --stage: models and rows are read from it instead of the hub.
if [ -n "${XPC_STAGED:-}" ]; then
  "$python" "$here/stage.py" "$XPC_STAGED" --missing
  XPC_STAGED=$(readlink -f -- "$XPC_STAGED")
  export XPC_STAGED HF_HUB_CACHE="$XPC_STAGED/hub" HF_HUB_OFFLINE=1
  unset TRANSFORMERS_CACHE # transformers before 5 prefers it
fi

# All checks in one plain process; before a launch the launcher itself runs them.
if [ "$only_preflight" = true ]; then
  exec "$python" "$here/trainer/main.py" --preflight
fi
exec "${command[@]}"
