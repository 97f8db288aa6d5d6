"""Common parts of a bundle's scripts: they run under bash, from any folder, and take at most one flag."""

from __future__ import annotations

from collections.abc import Mapping

HELP = """\
  --help | -h)
    sed -n '2,/^[^#]/s/^# \\{0,1\\}//p' "$script" # the lines above
    exit 0
    ;;
"""
"""The case of `--help`: it prints the comment at the head of the script."""

BASH = """\
if [ -z "${{BASH_VERSION:-}}" ]; then
  echo "{name}: this is a script for bash: bash {name}" >&2
  exit 2
fi
set -euo pipefail

script=$(readlink -f -- "${{BASH_SOURCE[0]}}")
here=${{script%/*}}
"""
"""The lines after the head: check that bash runs the script `name`, and find its folder."""

START = """\
python=${{PYTHON:-python3}}
{variables}
if {several}[ "$#" -gt 1 ]; then
  echo "{name}: at most one argument; the bundle decides what is {done}, not flags" >&2
  exit 2
fi
case "${{1:-}}" in
  "") ;;
{cases}{help}  *)
    printf '{name}: unknown argument %q; only {flags} accepted\\n' "$1" >&2
    exit 2
    ;;
esac
"""

DRY_RUN = """
if [ "$dry_run" = true ]; then
  printf '%q ' "${command[@]}"
  printf '\\n'
  exit 0
fi
if ! command -v "$python" >/dev/null; then
  printf '%s: no program %q; set PYTHON to the interpreter of the run\\n' "${script##*/}" "$python" >&2
  exit 2
fi

# A folder filled by launch.sh --stage: models and rows are read from it instead of the hub.
if [ -n "${XPC_STAGED:-}" ]; then
  "$python" "$here/stage.py" "$XPC_STAGED" --missing
  XPC_STAGED=$(readlink -f -- "$XPC_STAGED")
  export XPC_STAGED HF_HUB_CACHE="$XPC_STAGED/hub" HF_HUB_OFFLINE=1
  unset TRANSFORMERS_CACHE # transformers before 5 prefers it
fi
"""
RUN = 'exec "${command[@]}"\n'


def start(name: str, done: str, flags: Mapping[str, str], several: str = "") -> str:
    """The first lines: the shell, the folder and the flags, each with the variable that it sets to true.

    `name` is the script's file name, `done` the word for its work ("trained"), `several` the flag that takes arguments.
    """
    words = f"{', '.join(flags)} and --help"
    return (BASH + START).format(
        name=name,
        done=done,
        several=f'[ "${{1:-}}" != {several} ] && ' if several else "",
        variables="".join(f"{variable}=false\n" for variable in flags.values()),
        help=HELP,
        cases="".join(f"  {flag}) {variable}=true ;;\n" for flag, variable in flags.items()),
        flags=f"{words} are",
    )


def command(words: list[str], program: str) -> str:
    """The command as a shell array, one group of words per line; `program` is a file in the bundle's trainer/."""
    return "\ncommand=(\n" + "".join(f"  {word}\n" for word in words) + f'  "$here/trainer/{program}"\n)\n'
