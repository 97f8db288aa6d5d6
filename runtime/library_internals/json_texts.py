"""Read a text of a JSON file as a text, even if the text is a date (datasets 5)."""

from types import SimpleNamespace
from typing import Any


def keep_dates() -> None:
    """Make the datasets library read dates in JSON files as texts from now on.

    pyarrow turns a column in which every text is a date, such as answers like "2024-05-01", into timestamps. A run
    would stop at such an answer, or its reward function would compare a datetime with the model's text.
    """
    from datasets.packaged_modules.json import json as module

    if not isinstance(module.paj, SimpleNamespace):
        module.paj = SimpleNamespace(**{**vars(module.paj), "read_json": _read_json})


def _read_json(data: Any, **options: object) -> object:
    """Read JSON by ``pyarrow.json.read_json``; if it finds timestamps, read the data again with texts instead."""
    import pyarrow
    from pyarrow import json

    table = json.read_json(data, **options)
    fields = [pyarrow.field(one.name, _without_dates(one.type)) for one in table.schema]
    if fields == list(table.schema):
        return table
    data.seek(0)
    return json.read_json(data, parse_options=json.ParseOptions(explicit_schema=pyarrow.schema(fields)), **options)


def _without_dates(kind: Any) -> object:
    """An Arrow type in which text replaces every timestamp type, also inside lists and structs."""
    import pyarrow

    types = pyarrow.types
    if types.is_timestamp(kind):
        return pyarrow.string()
    if types.is_list(kind):
        return pyarrow.list_(kind.value_field.with_type(_without_dates(kind.value_type)))
    if types.is_struct(kind):
        return pyarrow.struct([one.with_type(_without_dates(one.type)) for one in kind])
    return kind
