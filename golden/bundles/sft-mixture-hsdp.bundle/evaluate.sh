#!/usr/bin/env bash
# Evaluates the trained model by lm-evaluation-harness 0.4.13. evaluation.json beside this script names the tasks.
#
#   processes      8
#   results        eval/results.json in the output folder of the run
#
#   ./evaluate.sh             evaluate; started in the folder that launch.sh was started in
#   ./evaluate.sh --dry-run   print the command, and stop
#   ./evaluate.sh --help      print this, and stop
#
# Nothing else is accepted. Read from the environment:
#
#   PYTHON       the interpreter (python3)
#   XPC_STAGED   a folder that launch.sh --stage has filled: no hub is asked
#
# Exit status: 0 evaluated; 1 something is wrong, and a message says what; 2 used wrongly.
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
  echo "evaluate.sh: one argument at most; what is evaluated is decided by the bundle, not by flags" >&2
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
    printf 'evaluate.sh: unknown argument %q; only --dry-run and --help are accepted\n' "$1" >&2
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
exec "${command[@]}"
