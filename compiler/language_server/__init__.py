"""`xpc lsp`: a language server for `.xp` files over standard input and output.

Only the module `server` knows the protocol. The other modules compute an answer from a text and an offset in it:
cursor_context, hover, completion, navigation, tokens. The server needs the package pygls, which the extra `lsp`
installs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from xpc.compiler.files.inputs import UsageError
from xpc.compiler.render.argument_parser import ArgumentParser

EPILOG = "Editors start this server; docs/editors.md has the configuration for VS Code, Neovim and Helix."


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options. Exits with status 2 if they are wrong, as argparse does."""
    description = "Speak the Language Server Protocol on standard input and output."
    parser = ArgumentParser("xpc lsp", description=description, epilog=EPILOG)
    return parser.parse_args(list(arguments))


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Run the server until the editor stops it. Raises UsageError if pygls is not installed."""
    try:
        from xpc.compiler.language_server.server import SERVER
    except ImportError as error:
        if (error.name or "").startswith("xpc"):  # a missing module of xpc itself is a bug
            raise
        from xpc.compiler.files.package import install_command

        raise UsageError(f"the language server needs {error.name}: {install_command('lsp')}") from error
    # sys.stdin and sys.stdout are not used, because the command line has replaced them by streams for terminals
    with open(0, "rb", closefd=False) as requests, open(1, "wb", closefd=False) as responses:
        SERVER.start_io(requests, responses)
    return "", 0
