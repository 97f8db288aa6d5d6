"""Run the worker of `xpc preview` with a fake hub of 3,000 rows: `python of_hub.py BUNDLE OUT SCAN CHOICE`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

WORKER = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "compiler", "preview"
)
ROWS = 3000
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}


def main(folder: str, out: str, scan: str, choice: str) -> int:
    """Prepare rows as the worker of `xpc preview` does. The file OUT gets the worker's answer, what the worker printed,
    and its requests to the hub.
    """
    sys.path.insert(0, WORKER)
    import datasets
    from worker import session, start

    turns = [{"role": "user", "content": "What is 1+1?"}, {"role": "assistant", "content": "It is 2."}]
    rows = datasets.Dataset.from_list([{"messages": turns, "tools": [TOOL], "row": at} for at in range(ROWS)])
    read: list[dict[str, Any]] = []

    def load_dataset(*location: Any, streaming: bool = False, **options: Any) -> Any:
        read.append({"place": location[0], "streaming": streaming, "revision": options["revision"]})
        return rows.to_iterable_dataset() if streaming else rows

    datasets.load_dataset = load_dataset
    session.isolate()
    opened = session.Session(folder, scratch := tempfile.mkdtemp(), False)
    request = {"row": None, "random": None, "n": 2, "scan": scan or None, "choice": choice, "rewards": False,
               "unread": {"0": os.path.join(scratch, "stored-0.jsonl")}}  # fmt: skip
    progress: list[str] = []
    answer = start._answer(opened, request, progress.append)
    with open(out, "w", encoding="utf-8") as handle:
        json.dump({"answer": answer, "progress": progress, "read": read, "scratch": scratch}, handle)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
