"""Run the worker of `xpc preview` on a bundle: `python prepared.py BUNDLE OUT ROWS [rows]`."""

from __future__ import annotations

import json
import os
import sys
import tempfile

WORKER = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "compiler", "preview"
)


def main(folder: str, out: str, many: int, only_rows: bool = False) -> int:
    """Prepare the first rows of every source. Without the argument `rows`, also determine which rows the first steps
    train on.
    """
    sys.path.insert(0, WORKER)
    from worker import session, start

    session.isolate()
    opened = session.Session(folder, tempfile.mkdtemp(), False)
    request = {"row": None, "random": None, "n": many, "scan": None, "choice": "first", "rewards": only_rows,
               "unread": {}}  # fmt: skip
    answer = start._answer(opened, request, print)
    if not only_rows:
        scanned = start._answer(opened, {**request, "n": 2, "scan": "all", "choice": "order"}, print)
        answer |= {name: scanned[name] for name in ("order", "counts", "messages")}
    with open(out, "w", encoding="utf-8") as handle:
        json.dump(answer, handle)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), len(sys.argv) > 4))
