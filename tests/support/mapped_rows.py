"""Compare the rows of `launch.sh --prepare` with the rows of `Dataset.map`. Run `python mapped_rows.py BUNDLE...` in
the folder with the bundles' model and data.

Prints one line of JSON for each call of `Dataset.map` or `Dataset.filter` whose function gets single rows. The line
says which function it is, whether it was called in batches, whether a function of Arrow columns replaced it, and
whether the results have the same types and values as those of `Dataset.map` itself.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from runpy import run_path
from typing import Any

Mapped = Callable[..., Any]


def compared(writing: Callable[..., Mapped], bundle: str) -> Callable[..., Mapped]:
    """Wrap `prepare_rows._writing`, to compare the result of each call with the result of `Dataset.map`."""

    def compare(folder: str, calls: list[dict[str, Any]], tokenizer: Any) -> Mapped:
        prepared, within = writing(folder, calls, tokenizer), False

        def mapped(real: Mapped, rows: Any, function: Any = None, **options: Any) -> Any:
            nonlocal within
            keeps = function.args[0] if isinstance(function, partial) else None
            if within or function is None or (options.get("batched") and keeps is None):
                return prepared(real, rows, function, **options)
            within = True
            try:
                found, expected = prepared(real, rows, function, **options), real(rows, function, **options)
            finally:
                within = False
            on_columns = run_path(os.path.join(bundle, "batched_map.py"))["on_columns"]
            about = {
                "bundle": os.path.basename(bundle),
                "function": getattr(keeps or function, "__qualname__", "_row"),
                "rows": len(rows),
                "kept": len(found),
                "batched": bool(keeps) or all(one["filename"].endswith("-0.arrow") for one in found.cache_files),
                "columns": (found.format["type"] == "arrow") if keeps else on_columns(function) is not None,
                "types": found.features == expected.features,
                "values": found.with_format(None).to_list() == expected.to_list(),
            }
            print("CALL", json.dumps(about), flush=True)
            return found

        return mapped

    return compare


def prepare(bundle: str) -> None:
    """Prepare the rows of one bundle."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainer"]:
        del sys.modules[name]  # each bundle has its own package `trainer`
    sys.path.insert(0, bundle)
    program = run_path(os.path.join(bundle, "prepare_rows.py"))["_prepare"]
    program.__globals__["_writing"] = compared(program.__globals__["_writing"], bundle)
    with tempfile.TemporaryDirectory() as location:
        program(bundle, location)
    sys.path.pop(0)


if __name__ == "__main__":
    for one in sys.argv[1:]:
        prepare(os.path.abspath(one))
