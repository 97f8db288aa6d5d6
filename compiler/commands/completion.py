"""`xpc completion SHELL`: a script that completes commands, options and names in bash, zsh and fish."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from xpc.compiler.commands import COMMANDS
from xpc.compiler.commands.listing import KINDS

SHELLS = ("bash", "zsh", "fish")
EPILOG = (
    'bash: eval "$(xpc completion bash)" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. '
    "fish: xpc completion fish > ~/.config/fish/completions/xpc.fish"
)
RECIPES = "xpc list recipes 2>/dev/null | tail -n +2 | cut -d' ' -f1"
FORMATS = r"sed -n 's/.*--format {\([^}]*\)}.*/\1/p' | sort -u | tr , '\n'"
"""The shell command that reads the values of --format from the help of a command."""
BASH = """\
_xpc() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{commands} --help --version" -- "$word"))
  elif [ "$before" = --format ]; then
    COMPREPLY=($(compgen -W "$(xpc "$command" --help 2>/dev/null | {formats})" -- "$word"))
  elif [ "$command" = list ] && [ "$COMP_CWORD" = 2 ]; then
    COMPREPLY=($(compgen -W "{kinds}" -- "$word"))
  elif [ "$command" = completion ]; then
    COMPREPLY=($(compgen -W "{shells}" -- "$word"))
  elif [ "$before" = --from ]; then
    COMPREPLY=($(compgen -W "$({recipes})" -- "$word") $(compgen -f -X '!*.xp' -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$(xpc "$command" --help 2>/dev/null | grep -o -- '--[a-z-]*' | sort -u)" -- "$word"))
  else
    COMPREPLY=($(compgen -f -X '!*.xp' -- "$word") $(compgen -d -- "$word"))
  fi
}}
complete -o filenames -F _xpc xpc
"""
ZSH = "autoload -Uz bashcompinit && bashcompinit\n" + BASH
FISH = """\
complete -c xpc -f
complete -c xpc -n __fish_use_subcommand -a "{commands}"
complete -c xpc -n "__fish_seen_subcommand_from list" -a "{kinds}"
complete -c xpc -n "__fish_seen_subcommand_from completion" -a "{shells}"
complete -c xpc -n "__fish_seen_subcommand_from new" -l from -x -a "({recipes})"
complete -c xpc -l format -x -a "(xpc (commandline -opc)[2] --help 2>/dev/null | {formats})"
complete -c xpc -n "not __fish_use_subcommand; and not __fish_seen_subcommand_from list completion" -F
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. Exits with status 2 if they are wrong, as argparse does."""
    parser = argparse.ArgumentParser("xpc completion", description="Print a completion script.", epilog=EPILOG)
    parser.add_argument("shell", choices=SHELLS)
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """The script, and status 0."""
    text = {"bash": BASH, "zsh": ZSH, "fish": FISH}[options.shell]
    words = {"commands": " ".join(COMMANDS), "kinds": " ".join(KINDS), "shells": " ".join(SHELLS)}
    return text.format(recipes=RECIPES, formats=FORMATS, **words), 0
