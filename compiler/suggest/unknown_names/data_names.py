"""Suggest what to write for an unknown name in a `data` block. For example, `chosen = good` names a column, `path =
"rows.jsonl"` a source, and `alpaca: 30%` a source with its share.
"""

from __future__ import annotations

import re

from xpc.compiler import registry
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.suggest.converted_values import FILES, REPOSITORY
from xpc.compiler.suggest.sentence import method_of
from xpc.compiler.suggest.tables import usual_columns
from xpc.grammar.tree import Count, List, Number

PARTS = ["prompt completion", "prompt chosen rejected", "messages", "conversations", "text", "prompt completion label"]
"""The columns of a row, in the order of xpc's setting `columns`. Other tools have a key for each column: `chosen`."""
ONLINE = ("grpo", "rloo")
IN_ORDER = "the names of the rows' columns, in this order"
COLUMN = re.compile(r"(?:(?:column|field|key)_)?(\w+?)((?:_(?:column|field|key|col))*)")
"""A pattern for a key that names the column of one part of a row, such as `winner_column` and `field_messages`."""
SOURCES = ("path", "paths", "file", "files", "data_files", "dataset", "datasets", "source", "sources")
"""Keys of other tools whose value is a data source."""


def data_advice(unknown: UnknownName) -> str | None:
    """The help for an unknown name in a `data` block: what to write instead. None if the name is not about data."""
    name = unknown.name
    columns = columns_of(unknown)
    if columns is not None and ("," in columns or _part(name) == name):
        return f"write `columns = {columns}`: {IN_ORDER}"
    if name in SOURCES:
        source = (unknown.typed or "").strip("[] ").partition(",")[0].strip() or '"rows.jsonl"'
        source = source.strip('"') if REPOSITORY.fullmatch(source.strip('"')) else source
        return f"write the source `{source}` on a line of its own in the block, or write `on {source}` without a block"
    rows = mixture_row(name, unknown.typed) if isinstance(unknown.node, Number | Count) else None
    share = re.search(r"take = (.+%)", rows or "")
    mixed = f"; in a mixture with shares, write `share = {share[1]}`" if share is not None else ""
    return rows and f"write `{rows}`: the number of rows to use from this source, or a share of its rows{mixed}"


def columns_of(unknown: UnknownName) -> str | None:
    """The value of `columns` for another tool's key for one column: `[PROMPT, good, REJECTED]` for `winner_column =
    good`. The parts of a row without a key get placeholders. None for any other name.
    """
    part, method = _part(unknown.name), method_of(unknown.label.source.text)
    if part == "label" and (method in ("", "sft", "distill") or method in ONLINE):
        part = "completion"  # only kto reads labels of rows
    columns = next((one.split() for one in PARTS if part != "prompt" and part in one.split()), None)
    if columns is None or isinstance(unknown.node, List):
        return None
    if part == "completion" and method in ONLINE:
        columns = [part]  # a reward function reads the answer, and `data(prompt=...)` names the prompt
    named = {part: (unknown.typed or "").strip('"') or part.upper(), **_block_columns(unknown)}
    return f"[{', '.join(named.get(one, one.upper()) for one in columns)}]"


def _part(name: str) -> str:
    """The part of a row that another tool's key names: `chosen` for `winner_column`. "" for any other name."""
    key = COLUMN.fullmatch(name.lower().rpartition(".")[2])
    if key is None or key[0] == key[1]:
        return name if any(name in one.split() for one in PARTS) else ""
    return next((part for part, names in usual_columns().items() if key[1] in names), "")


def mixture_row(name: str, typed: str | None) -> str | None:
    """Rewrite a dataset that is followed by its share of a mixture: `alpaca: 30%` becomes `alpaca { take = 30% }`. None
    for any other name.
    """
    if typed is None or not typed.lstrip("-")[:1].isdecimal():
        return None
    known = next((one for one in (name.replace("_", "-"), name) if registry.find_dataset(one) is not None), None)
    known = name if known is None and (REPOSITORY.fullmatch(name) or FILES.fullmatch(name.strip('"'))) else known
    source = f'"{known}"' if known is not None and FILES.fullmatch(known) else known  # the name of a file gets quotes
    return None if source is None else f"{source} {{ take = {_rows(typed)} }}"


def _block_columns(unknown: UnknownName) -> dict[str, str]:
    """All lines `NAME = VALUE` of the block that contains the unknown name, as a mapping from names to values."""
    text, location = unknown.label.source.text, unknown.label.span.start
    inside = text[text.rfind("{", 0, location) + 1 : (text.find("}", location) + 1 or len(text) + 1) - 1]
    found = re.findall(r"^\s*(\w+)\s*=\s*(\w+|\"[^\"\\\n]+\")", inside.replace(",", "\n"), re.MULTILINE)
    return {_part(key) or key: bare if (bare := one.strip('"')).isidentifier() else one for key, one in found}


def _rows(typed: str) -> str:
    """Convert a number of rows, or a share of them, to a value for `take`: 1000 stays, and 0.6 becomes `60%`. For any
    other number, the result is the example `10%`.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(%|k|M|Ki|Mi)?", typed.replace("_", ""))
    number = 0.0 if found is None else float(found[1])
    if not 0 < number < 1e12:
        return "10%"
    return f"{100 * number:.10g}%" if found is not None and found[2] is None and number <= 1 else typed
