"""Print the CPU seconds of the parts of `xpc preview`, for `make bench`: `python bench_preview.py BUNDLE ROW`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

PREVIEW = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "compiler", "preview")


def main(folder: str, row: str) -> int:
    """Print a JSON object with the CPU seconds of each part of a preview. `row` is the number of the row to preview. If
    it is empty, the first three rows are previewed.
    """
    sys.path.insert(0, PREVIEW)
    from worker import prepare, session, stored

    spent: dict[str, float] = {}
    last = [0.0]

    def part(name: str) -> None:
        now = time.process_time()
        spent[name], last[0] = now - last[0], now

    session.isolate()
    opened = session.Session(folder, tempfile.mkdtemp(), False)
    import datasets
    import transformers

    opened.trainer_class()
    transformers.AutoTokenizer, datasets.load_dataset  # noqa: B018 - transformers imports its parts when they are used
    part("libraries")
    opened.load()
    part("tokenizer")
    opened.trainer(datasets.Dataset.from_list([{"text": "x"}]))
    part("trainer")
    numbers = [int(row)] if row else [0, 1, 2]
    source = opened.bundle.data["sources"][0]
    assert len(list(prepare.every(opened, [(source, stored.pick(opened, source, numbers))]))) == len(numbers)
    part("rows")
    print(json.dumps(spent))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
