"""The parser of all command lines. It suggests an option in place of a misspelt one. In its messages, quoted texts are
escaped, because the name of a file may contain escape sequences for a terminal.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from xpc.compiler.render.visible import visible
from xpc.grammar.nearest import nearest

UNKNOWN = "unrecognized arguments: "
"""The beginning of argparse's message about unknown options."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class ArgumentParser(argparse.ArgumentParser):
    """argparse's parser, with suggestions, and with messages that are safe to print."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and a message, and exit with status 2."""
        if message.startswith(UNKNOWN):
            message += self._suggestion(message.removeprefix(UNKNOWN).split())
        super().error("\n".join(map(visible, message.split("\n"))))

    def _suggestion(self, words: list[str]) -> str:
        """A phrase that suggests an option in place of the first unknown one: `--format` for `--fromat`."""
        written = next((one.partition("=")[0] for one in words if one.startswith("--")), "")
        near = nearest(written, [one for one in self._options() if one.startswith("--")]) if written else None
        return f"; did you mean `{near}`?" if near else ""

    def _options(self) -> Iterator[str]:
        """The options of this parser and of its subcommands, whose unknown options this parser reports, too."""
        yield from self._option_string_actions
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser._option_string_actions
