"""Get the rows that bundles train on, by running prepared_rows.py in a warm interpreter."""

from __future__ import annotations

import json
import os
from typing import Any

from method_runs import Warm

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "prepared_rows.py")


def trained_on(warm: Warm, target: str, name: str, specs: tuple[str, ...]) -> list[dict[str, Any]]:
    """Compile the specs, and return what prepared_rows.py prints for each bundle: `{"rows": ..., "counted": ...}`.

    Each result also has the key `said` with the program's output for all bundles.
    """
    bundles = [warm.compiled(text, f"{name}-{target}-{number}") for number, text in enumerate(specs)]
    answer = warm.of(target).run(bundles[0], warm.location, *bundles, program=PROGRAM)
    assert answer["status"] == [0], answer["err"][-3000:]
    found = [json.loads(line[5:]) for line in answer["out"].splitlines() if line.startswith("ROWS ")]
    return [{**one, "said": answer["out"]} for one in found]
