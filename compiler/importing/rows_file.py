"""Rows that an import writes to a JSONL file next to the spec."""

from __future__ import annotations

import json
from collections.abc import Iterable

from xpc.compiler.importing.draft import Draft


def write_rows(draft: Draft, rows: Iterable[object]) -> str:
    """Write rows to a file next to the spec, such as `import.rows.jsonl`. Returns the file's name."""
    data = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows).encode()
    number, name = 1, f"{draft.stem}.rows.jsonl"
    while draft.files.get(name, data) != data:
        number += 1
        name = f"{draft.stem}.rows-{number}.jsonl"
    draft.files[name] = data
    return name
