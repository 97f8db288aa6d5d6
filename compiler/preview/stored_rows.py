"""Apply the rules about rows to rows that `xpc check` does not read: the rows of Parquet files, of large files and of
datasets on the hub. The worker of a preview reads these rows anyway, and writes them to a file of JSON lines.
"""

from __future__ import annotations

import os

from xpc.compiler.data import rows
from xpc.compiler.rules import rules
from xpc.compiler.rules.core.index import MODULES
from xpc.grammar.diagnostic import ERROR, NOTE
from xpc.grammar.record import evolve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from xpc.compiler.spec.checked import CheckedSpec
    from xpc.compiler.spec.resources import DataSource
    from xpc.grammar.diagnostic import Diagnostic

ABOUT_ROWS = frozenset(
    (
        *(f"rules.data.{name}" for name in ("survey", "export_marks", "structure", "roles", "rows", "read_columns",
                                            "prompts", "text_rows", "token_rows", "row_arguments", "templates")),
        *(f"rules.method.{name}" for name in ("sft", "kto", "prompt_rows")),
    )
)  # fmt: skip
"""The modules of rules about single rows, and about counts of rows. Rules that compare sources, or that need the number
of all rows, are in other modules. They are not applied, because a preview may read only the first rows.
"""
STORED = "stored.jsonl"
SURVEYED = "0" * 64
"""A placeholder for the digest of a source whose rows a preview has read. With a digest, the rules treat the source as
a file that `xpc check` has read.
"""


def findings(spec: CheckedSpec, folder: str, written: Mapping[str, int]) -> list[dict[str, Any]]:
    """The findings of the rules about the rows that the worker has written, without the findings that `xpc check`
    reports for the spec. `written` maps the index of a source to the number of its rows in the file `path(folder,
    index)`.
    """
    data = list(spec.data)
    for index, many in written.items():
        with open(path(folder, int(index)), "rb") as handle:
            data[int(index)] = _surveyed(data[int(index)], handle.read(), many)
    changed = evolve(spec, data=tuple(data))
    known = {(one.code, one.message) for one in (*spec.problems, *(one.finding for one in spec.silenced))}
    found = (
        one
        for module, applies in MODULES
        if module in ABOUT_ROWS and applies(changed)
        for rule in rules(module)
        for one in rule.run(changed)
    )
    new = {(one.code, one.message): one for one in found if (one.code, one.message) not in known}
    return [_plain(one) for one in sorted(new.values(), key=lambda one: (one.severity != ERROR, one.severity == NOTE))]


def path(folder: str, index: int) -> str:
    """The file into which the worker writes the rows of a source."""
    return os.path.join(folder, f"stored-{index}.jsonl")


def _surveyed(source: DataSource, content: bytes, many: int) -> DataSource:
    found = tuple(rows.first_columns(STORED, content) or ())
    read = evolve(source, found=found, rows=many, parts=(), sha256=SURVEYED)
    counted = rows.survey(evolve(read, path=STORED, content=content))
    return evolve(read, survey=counted, content=None)


def _plain(one: Diagnostic) -> dict[str, Any]:
    return {
        "code": one.code,
        "slug": one.slug,
        "severity": one.severity,
        "message": one.message,
        "help": one.help or "",
    }
