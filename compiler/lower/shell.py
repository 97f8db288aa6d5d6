"""Shell code that several scripts of a bundle share. The scripts run under bash, can be called from any folder, and
accept at most one flag per call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xpc.grammar.package_data import read_sections

RUN = 'exec "${command[@]}"\n'


def shared() -> Mapping[str, str]:
    """The sections of `shell.sh`, each by its name."""
    return read_sections(__file__, "shell.sh")


def start(name: str, done: str, flags: Mapping[str, str], several: Sequence[str] = ()) -> str:
    """The first lines of a script, which find the script's folder and read its flags. `flags` maps each flag to the
    shell variable that the flag sets to true.

    `name` is the script's file name. `done` is a word for what the script does to a model, such as "trained". `several`
    are the flags that take arguments.
    """
    words = f"{', '.join(flags)} and --help"
    parts = shared()
    return (parts["bash"] + parts["start"]).format(
        name=name,
        done=done,
        several="".join(f'[ "${{1:-}}" != {flag} ] && ' for flag in several),
        variables="".join(f"{variable}=false\n" for variable in flags.values()),
        help=parts["help"],
        cases="".join(f"  {flag}) {variable}=true ;;\n" for flag, variable in flags.items()),
        flags=f"{words} are",
    )


def command(words: list[str], program: str) -> str:
    """Shell code that sets the array `command`: the texts in `words`, one per line, and then the path of the file
    `program` in the bundle's trainer/.
    """
    return "\ncommand=(\n" + "".join(f"  {word}\n" for word in words) + f'  "$here/trainer/{program}"\n)\n'
