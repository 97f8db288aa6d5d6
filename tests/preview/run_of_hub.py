"""Run a bundle with a fake hub, whose rows contain tool calls from row 20 on: `python run_of_hub.py BUNDLE`."""

from __future__ import annotations

import sys
from typing import Any


def main(folder: str) -> int:
    """Run the bundle in the current folder."""
    sys.path.insert(0, folder)
    import datasets

    ask, answer = {"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "It is 2."}
    call = {"from": "function_call", "value": '{"name": "add", "arguments": {"first": 1}}'}
    called = [ask, call, {"from": "observation", "value": "2"}, answer]
    rows = datasets.Dataset.from_list([{"conversations": called if at >= 20 else [ask, answer]} for at in range(32)])

    def load_dataset(*_: Any, streaming: bool = False, **__: Any) -> Any:
        return rows.to_iterable_dataset() if streaming else rows

    datasets.load_dataset = load_dataset
    from trainer.core import run

    return int(run.main(folder, []))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
