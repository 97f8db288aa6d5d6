"""The parser of all command lines. Its messages escape the texts that they quote, because the name of a file may
contain escape sequences.
"""

from __future__ import annotations

import argparse

from xpc.compiler.render.visible import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class ArgumentParser(argparse.ArgumentParser):
    """argparse's parser, with messages that are safe to print."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and a message, and exit with status 2."""
        super().error("\n".join(map(visible, message.split("\n"))))
