"""For the language server, documents of any size: `EDITORS[name](n)` opens a document of size n, and returns a function
that answers an editor's requests about it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lsprotocol import types
from pygls.workspace import TextDocument

from xpc.compiler.language_server import server

Work = Callable[[], object]
HEAD = "xpc 1\n\ntrain qwen2.5-3b on infinity-instruct for 3 epochs\n\n"
TEXTS: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: HEAD + "seed " + "[(" * n,
    "closing brackets": lambda n: HEAD + ")]}" * n,
    "blocks": lambda n: HEAD + "memory {" * n,
    "blocks on lines": lambda n: HEAD + "memory {\n" * n,
    "closed blocks": lambda n: HEAD + "memory { }\n" * n,
    "empty lines": lambda n: HEAD + "\n" * n,
    "words": lambda n: HEAD + "lr " * n,
    "settings": lambda n: HEAD + "seed 1\n" * n,
    "unknown settings": lambda n: HEAD + "".join(f"sed{at} 1\n" for at in range(n)),
    "quotes": lambda n: HEAD + '"' * n,
    "comments": lambda n: HEAD + "# 🙂 ü\n" * n,
    "letters of two units": lambda n: HEAD + 'track wandb(name = "' + "🙂" * n + '")\n',
    "other line ends": lambda n: HEAD + "seed 1\r" * n + "\f\u2028\n" * n,
    "sources": lambda n: HEAD + "data mix {\n" + "".join(f"  org/x{at}\n" for at in range(n)) + "}\n",
}


def document(make: Callable[[int], str], request: Callable[[Any, TextDocument], object]) -> Callable[[int], Work]:
    """Return a function of the document's size n. It makes the document and returns the work to be timed: one request
    about the document.
    """

    def sized(n: int) -> Work:
        uri = Path(tempfile.mkdtemp(dir=os.environ.get("PYTEST_TMP")), "a.xp").as_uri()
        opened = TextDocument(uri, make(n), 1, "xpc")
        workspace = SimpleNamespace(get_text_document=lambda _: opened)
        abilities = types.ClientCapabilities()
        client = SimpleNamespace(workspace=workspace, client_capabilities=abilities)
        return lambda: request(client, opened)

    return sized


def findings(_: Any, opened: TextDocument) -> object:
    return [server.as_protocol(opened, one) for one in server.checked(opened).problems[: server.FINDINGS]]


def places(client: Any, opened: TextDocument) -> object:
    """Request hover, completion and definition at the end of the document, and at its middle."""
    last = len(opened.lines) - 1
    for line in {last // 2, last}:
        at = types.Position(line, len(opened.lines[line]) // 2)
        where = types.TextDocumentIdentifier(opened.uri), at
        server.hovered(client, types.HoverParams(*where))
        server.completed(client, types.CompletionParams(*where))
        server.defined(client, types.DefinitionParams(*where))
    return None


def texts(client: Any, opened: TextDocument) -> object:
    """Request the formatted text, the quick fixes for the complete text, and the kinds of all tokens."""
    file = types.TextDocumentIdentifier(opened.uri)
    everything = types.Range(types.Position(0, 0), types.Position(len(opened.lines), 0))
    server.formatted(client, types.DocumentFormattingParams(file, types.FormattingOptions(2, True)))
    server.actions(client, types.CodeActionParams(file, everything, types.CodeActionContext([])))
    return server.tokens(client, types.SemanticTokensParams(file))


EDITORS = {
    f"editor: {request.__name__} of {name}": document(make, request)
    for name, make in TEXTS.items()
    for request in (findings, places, texts)
}
