"""`xpc completion SHELL`: print a script with which a shell (bash, zsh or fish) completes commands,
options and names.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from xpc.compiler.commands import COMMANDS
from xpc.compiler.commands.listing import KINDS
from xpc.compiler.render.argument_parser import ArgumentParser
from xpc.grammar.package_data import read_text

SHELLS = ("bash", "zsh", "fish")
EPILOG = (
    'bash: eval "$(xpc completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. '
    "fish: xpc completion fish > ~/.config/fish/completions/xpc.fish"
)
RECIPES = "xpc list recipes 2>/dev/null | tail -n +2 | cut -d' ' -f1"
FORMATS = r"sed -n 's/.*--format {\([^}]*\)}.*/\1/p' | sort -u | tr , '\n'"
"""A shell command that extracts the values of `--format` from the help of a command."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Wrong options end the process with status 2, as argparse does."""
    parser = ArgumentParser("xpc completion", description="Print a completion script.", epilog=EPILOG)
    parser.add_argument("shell", choices=SHELLS)
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Return the completion script, and exit status 0."""
    script = read_text(__file__, "completion.fish" if options.shell == "fish" else "completion.bash")
    if options.shell == "zsh":
        script = "autoload -Uz bashcompinit && bashcompinit\n" + script
    words = {"commands": " ".join(COMMANDS), "kinds": " ".join(KINDS), "shells": " ".join(SHELLS)}
    return script.format(recipes=RECIPES, formats=FORMATS, **words), 0
