"""Say what to write instead of a line of a shell script, such as `accelerate launch train.py`. Imported only for a
wrong spec.
"""

from __future__ import annotations

import re

from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT, reason
from xpc.compiler.suggest.tables import commands

SHELL = "a spec has no shell commands"
START = "leave the line out: `xpc compile` writes a launch.sh, which starts the run"
CONFIG = re.compile(r"[^\n]*?(?<!_file)[ \t=]([\w./-]+\.ya?ml)\b")
"""A pattern for a file with the settings of another tool."""
COMMAND = re.compile(
    r"[ \t]*(?:(?:export[ \t]+|(?=[A-Z_\d]{4,}=))(?P<variable>[A-Za-z_]\w*)=(?P<value>[^\s\"']*)"
    r"|(?P<setup>source|module[ \t]+load|conda[ \t]+activate)[ \t]+[\w./~$-]"
    r"|(?P<python>from[ \t]+[\w.]+[ \t]+import[ \t]|import[ \t]+[a-z][\w.]*[ \t]*(?:$|,|as[ \t]|#|\n)"
    r"|\w+\.(?:train|fit)\([^()\n]*\))"
    r"|(?:" + "|".join(rf"{name}[ \t]+(?:{after})" for name, after in commands().items()) + "))"
)
"""A pattern for the beginning of a line of a shell script, or for a line of Python that sets nothing."""


def command_help(command: re.Match[str]) -> str:
    """The help for a line of a shell script: the setting to write instead."""
    if command["variable"] is not None:
        if "export" not in command[0] and (why := reason(command["variable"])) is not None:
            return f"{NO_EQUIVALENT}{why}"
        form = f'launch(env=["{command["variable"][:60]}={command["value"][:60]}"])'
        then = COMMAND.match(command.string, command.end())
        help = f"write `{form}`, if the run needs the variable"
        return help if then is None else f"{help}; {command_help(then)}"
    if command["setup"] is not None:
        return 'put the line into a file of bash, and write `launch(setup=file("env.sh"))`: launch.sh reads it first'
    file = CONFIG.search(command.string, command.end(), command.end() + 300)
    return START if file is None else f"{START}; `xpc import {file[1]}` writes a spec with the settings of this file"
