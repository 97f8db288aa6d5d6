"""Prepare rows with the trainer of a bundle. This file is run by the Python interpreter with the training packages.

It reads a request as JSON from standard input. It writes lines of JSON: first lines with `progress`, and at the end one
line with `answer` or `error`. What the libraries print goes to standard error.
"""

import json
import os
import sys
from typing import Any

if not __package__:
    _folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[0] = os.path.dirname(_folder)
    __package__ = os.path.basename(_folder)
    __import__(__package__)
    # without its folder in sys.path, no library imports a file of this folder in place of a package with the same name
    del sys.path[0]

from . import session as sessions
from .printed import FIRST, waiting


def main() -> int:
    """Handle one request. The exit status is 0 if an answer was written; an error message is also an answer."""
    request = json.load(sys.stdin)
    output = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="backslashreplace")
    os.dup2(2, 1)  # from here on, the libraries print to standard error, so that standard output has only the answer

    def send(kind: str, value: Any) -> None:
        output.write(json.dumps({kind: value}) + "\n")
        output.flush()

    sessions.isolate()
    session = sessions.Session(request["bundle"], request["scratch"], request["trust_code"])
    try:
        send("answer", _answer(session, request, lambda sentence: send("progress", sentence)))
    except session.errors as error:
        send("error", str(error))
    except Exception as error:
        from . import templates

        if not templates.raised(error):
            raise
        send("error", f"the chat template refuses a row: {error}")
    return 0


def _answer(session: sessions.Session, request: dict[str, Any], progress: Any) -> dict[str, Any]:
    from . import prepare, stored

    with waiting(progress, "loading the libraries and the tokenizer", 2 * FIRST):
        session.load()
    scan, chosen, counts, order = None, list[Any](), None, None
    written = dict[str, int]()
    if request["scan"] is not None:
        from .scan import Scan

        most = int(request["scan"]) if request["scan"].isdecimal() else None
        of_hub = stored.FIRST_OF_HUB if request["scan"] == "local" else most
        scan = Scan(session, most, of_hub, progress)
        counts = scan.counts()
        for index, path in request["unread"].items():
            source = session.bundle.data["sources"][int(index)]
            written[index] = stored.write(session, source, most if source["id"] is None else of_hub, path)
    for source in session.bundle.data["sources"]:
        if scan is not None and request["choice"] in ("longest", "cut"):
            found = scan.longest(request["n"]) if request["choice"] == "longest" else scan.cut(request["n"])
            numbers = [scan.location(one)[1] for one in found if scan.location(one)[0] is source]
        elif scan is not None and request["choice"] != "first":
            numbers = []
        elif request["row"] is not None:
            numbers = [request["row"]]
        elif request["random"] is not None:
            numbers = stored.random_numbers(session, source, request["n"], request["random"])
        else:
            numbers = list(range(request["n"]))
        chosen.append((source, stored.pick(session, source, numbers)))
    if scan is not None and request["choice"] == "order":
        order = scan.order(request["n"])
    if scan is None and not any(rows for _, rows in chosen):
        which = "no rows" if request["row"] is None else f"no row {request['row']:,} (rows are numbered from 0)"
        raise session.errors(f"the data has {which}")
    rows = list(prepare.every(session, chosen, request["rewards"], progress))
    return {
        "method": session.method, "target": session.bundle.target, "bears_loss": session.bears_loss,
        "tokenizer": _facts(session), "rows": rows, "counts": counts, "order": order,
        "messages": [] if scan is None else scan.messages, "written": written,
        "generated_share": session.generated_share,
        "group": session.stated.get("num_generations") if session.plan["method"]["rewarded"] else None,
    }  # fmt: skip


def _facts(session: sessions.Session) -> dict[str, Any]:
    tokenizer = session.tokenizer
    return {
        "model": session.bundle.base, "end": [tokenizer.eos_token_id, tokenizer.eos_token],
        "begin": [tokenizer.bos_token_id, tokenizer.bos_token],
        "padding": [tokenizer.pad_token_id, tokenizer.pad_token],
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
