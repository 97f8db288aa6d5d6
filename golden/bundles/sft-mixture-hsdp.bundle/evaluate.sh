#!/usr/bin/env bash
# Evaluates the trained model with lm-evaluation-harness 0.4.13. evaluation.json next to it names the tasks.
#
#   processes      8
#   results        eval/results.json in the output folder of the run
#
#   ./evaluate.sh             evaluate; start it in the folder where launch.sh was started
#   ./evaluate.sh --dry-run   print the command, and stop
#   ./evaluate.sh --help      print this, and stop
#
# It takes no other arguments. Read from the environment:
#
#   PYTHON       the interpreter (python3)
#   XPC_STAGED   a folder filled by launch.sh --stage, which is read instead of the hub
#
# Exit status: 0 evaluated; 1 an error, with a message; 2 wrong usage.
if [ -z "${BASH_VERSION:-}" ]; then
  echo "evaluate.sh: this is a script for bash: bash evaluate.sh" >&2
  exit 2
fi
set -euo pipefail

script=$(readlink -f -- "${BASH_SOURCE[0]}")
here=${script%/*}
python=${PYTHON:-python3}
dry_run=false

if [ "$#" -gt 1 ]; then
  echo "evaluate.sh: at most one argument; the bundle decides what is evaluated, not flags" >&2
  exit 2
fi
case "${1:-}" in
  "") ;;
  --dry-run) dry_run=true ;;
  --help | -h)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script" # the lines above
    exit 0
    ;;
  *)
    printf 'evaluate.sh: unknown argument %q; only %s accepted\n' "$1" \
      '--dry-run and --help are' >&2
    exit 2
    ;;
esac

command=(
  "$python" -P -m torch.distributed.run --standalone --nproc_per_node 8
  "$here/trainer/evaluate.py"
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
exec "${command[@]}"
