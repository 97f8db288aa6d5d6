"""The parser of every command line. Its messages neutralise what they quote, which may be the name of a file."""

from __future__ import annotations

import argparse

from xpc.compiler.render.visible import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


class ArgumentParser(argparse.ArgumentParser):
    """argparse's parser with safe messages."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and a message, and exit with status 2."""
        super().error("\n".join(map(visible, message.split("\n"))))
