# Parts of several scripts.
# A part with `{fields}` goes through str.format, so its other braces are doubled.
#: bash: after the head: check that bash runs the script, and find its folder
if [ -z "${{BASH_VERSION:-}}" ]; then
  echo "{name}: this is a script for bash: bash {name}" >&2
  exit 2
fi
set -euo pipefail

script=$(readlink -f -- "${{BASH_SOURCE[0]}}")
here=${{script%/*}}
#: start: the arguments
python=${{PYTHON:-python3}}
{variables}
if {several}[ "$#" -gt 1 ]; then
  echo "{name}: at most one argument; the bundle decides what is {done}, not flags" >&2
  exit 2
fi
case "${{1:-}}" in
  "") ;;
{cases}{help}  *)
    printf '{name}: unknown argument %q; only %s accepted\n' "$1" \
      '{flags}' >&2
    exit 2
    ;;
esac
#: help: the case of --help, which prints the comment at the head of the script
  --help | -h)
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script" # the lines above
    exit 0
    ;;
#: dry_run: after the command

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
