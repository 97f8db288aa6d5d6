"""The parser of all command lines. In its messages, quoted texts are escaped, because the name of a file may contain
escape sequences for a terminal.
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
