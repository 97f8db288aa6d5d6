"""What the scripts of a bundle share: they run under bash, from any folder, and take one flag at most."""

from __future__ import annotations

from collections.abc import Mapping

HELP = """\
  --help | -h)
    sed -n '2,/^[^#]/s/^# \\{0,1\\}//p' "$script" # the lines above
    exit 0
    ;;
"""
"""A case of a script's first word: prints the lines at its head."""

BASH = """\
if [ -z "${{BASH_VERSION:-}}" ]; then
  echo "{name}: this is a script for bash: bash {name}" >&2
  exit 2
fi
set -euo pipefail

script=$(readlink -f -- "${{BASH_SOURCE[0]}}")
here=${{script%/*}}
"""
"""The lines after the head of a script `name`: it runs under bash, from any folder."""

START = """\
python=${{PYTHON:-python3}}
{variables}
if {several}[ "$#" -gt 1 ]; then
  echo "{name}: one argument at most; what is {done} is decided by the bundle, not by flags" >&2
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
  printf '%s: there is no program %q; PYTHON names the interpreter of the run\\n' "${script##*/}" "$python" >&2
  exit 2
fi

# A folder that launch.sh --stage has filled: models and rows are read from there, and no hub is asked.
if [ -n "${XPC_STAGED:-}" ]; then
  "$python" "$here/stage.py" "$XPC_STAGED" --missing
  XPC_STAGED=$(readlink -f -- "$XPC_STAGED")
  export XPC_STAGED HF_HUB_CACHE="$XPC_STAGED/hub" HF_HUB_OFFLINE=1
  unset TRANSFORMERS_CACHE # which transformers before 5 prefers
fi
"""
RUN = 'exec "${command[@]}"\n'


def start(name: str, done: str, flags: Mapping[str, str], several: str = "") -> str:
    """The lines before the work: the shell, the folder and the flags, each with the variable that it sets to true.

    `name` is the script's file name, `done` what it does to the model ("trained"), `several` the flag that takes words.
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
    """The command as an array of the shell, one group of words a line; `program` lies in the bundle's trainer/."""
    return "\ncommand=(\n" + "".join(f"  {word}\n" for word in words) + f'  "$here/trainer/{program}"\n)\n'
