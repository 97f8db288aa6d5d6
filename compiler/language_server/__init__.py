"""`xpc lsp`: a language server for `.xp` files over standard input and output.

What it answers is worked out from a text and an offset (place, hover, completion, navigation, tokens); `server` is the
only module that knows the protocol. It needs pygls: `pip install 'xpc[lsp]'`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from xpc.compiler.files.inputs import UsageError

EPILOG = "Editors start it themselves; docs/editors.md has the lines for VS Code, Neovim and Helix."


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. Exits with status 2 where they are wrong, as argparse does."""
    description = "Speak the Language Server Protocol on standard input and output."
    parser = argparse.ArgumentParser("xpc lsp", description=description, epilog=EPILOG)
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Serves until the editor ends it. Raises UsageError where pygls is not installed."""
    try:
        from xpc.compiler.language_server.server import SERVER
    except ImportError as error:
        if (error.name or "").startswith("xpc"):  # a broken installation, which no package mends
            raise
        raise UsageError(f"the language server needs {error.name}: pip install 'xpc[lsp]'") from error
    # Not sys.stdin and sys.stdout, which the command line has wrapped for people.
    with open(0, "rb", closefd=False) as asked, open(1, "wb", closefd=False) as answers:
        SERVER.start_io(asked, answers)
    return "", 0
