"""`xpc explain FILE` and `xpc explain FILE:SETTING`: the values of a spec, with their origins and the keys of the
bundle that contain them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from xpc.compiler.explain.lookup import setting_rows, source_setting
from xpc.compiler.files.inputs import SpecError, UsageError, read_spec
from xpc.compiler.language.items import SPEC
from xpc.compiler.language.schema import BY_PATH, TABLE, Setting, children, owner_of
from xpc.compiler.language.typed import show
from xpc.compiler.pipeline import Checked, check_text
from xpc.compiler.review.sources import described
from xpc.compiler.review.trace import Trace, shown
from xpc.compiler.rules.adapters.experts import adapted_paths
from xpc.compiler.spec.values import Origin
from xpc.grammar.record import evolve

MOST = 8
"""`xpc explain FILE`, which explains all settings, shows at most this many keys of the bundle for each setting."""
WRITTEN = ("model", "data", "extra")
"""Parts of a spec that are not settings, but are explained as well."""


def spec_values(path: str, name: str = "") -> str:
    """Explain all values of a spec, or only the values of `name`: a setting, a choice (`zero2`) or a clause (`memory`).

    Raises UsageError for an unknown name; the message suggests the most similar name. Raises SpecError if the spec has
    errors.
    """
    data, file, workspace = read_spec(path)
    rows = _rows(name) if name else list(TABLE)
    # explain the values of a run even if it does not fit in its GPUs
    checked = check_text(data, file, evolve(workspace, allow_oom=True))
    if checked.spec is None:
        raise SpecError(f"{path} has errors; `xpc check {path}` shows them")
    trace = Trace(checked.spec)
    # the settings of a data source are shown together with their source
    requested = "data" if source_setting(name) is not None else name
    out = [text for each, text in _written(trace) if each == requested or not name]
    for row in rows:
        if row.path in checked.spec.values:
            out.append(_value(checked, trace, row, path, None if name else MOST))
        elif len(rows) == 1 and not out:
            out.append(f"{row.path} has no value in {path}\n")
    return ("" if name else "\n").join(out) or f"{path} does not have `{name}`\n"


def _rows(name: str) -> list[Setting]:
    if name in WRITTEN:
        return list(children(name))
    # a name may have two meanings: `max_length` is a setting of vLLM, and TRL's name for `seq`
    found, own = setting_rows(name), owner_of(name)
    if found or source_setting(name) is not None:
        return [*found, *([own] if own is not None and own not in found else [])]
    from xpc.compiler.suggest.meaning import SAME, meaning

    intended = meaning(name)
    if intended is not None and intended.likeness >= SAME and intended.path in BY_PATH:
        return [BY_PATH[intended.path]]
    near = f"did you mean `{intended.path}`?" if intended is not None and intended.path in BY_PATH else ""
    raise UsageError(f"`{name}` is not a setting: {near or '`xpc list settings` shows them all'}")


def value_here(checked: Checked, path: str) -> str:
    """The value of a setting in a checked spec as text, with its origin and the keys of the bundle that contain it. ""
    if the setting has no value.
    """
    if checked.spec is None or path not in checked.spec.values:
        return ""
    return _value(checked, Trace(checked.spec), BY_PATH[path], "this spec", MOST)


def _written(trace: Trace) -> Iterator[tuple[str, str]]:
    """Yield the values that are not settings: the model, the data sources, and the arguments in `extra`. Each value is
    a pair: its kind (`model`, `data` or `extra`), and its text.
    """
    spec = trace.spec
    model = spec.model.location
    yield "model", _entry(f"model = {model}", Origin(SPEC, spec.model.label), trace, ("model.id", "model.path"))
    for at, source in enumerate(spec.data):
        yield "data", _entry(f"data = {described(source)}", Origin(SPEC, source.label), trace, (f"data.sources[{at}]",))
    for one in spec.evaluated:
        for source in one.sources:
            text = f"eval.data {one.name} = {described(source)}"
            yield "data", _entry(text, Origin(SPEC, source.label), trace, ("data.evaluation.sets",))
    for library, table in spec.extra.items():
        for name, value in table.items():
            keys = (name, f"arguments.{name}", f"optimizer.params.{name}")
            yield "extra", _entry(f"extra {library}.{name} = {json.dumps(value.value)}", value.origin, trace, keys)


def _entry(head: str, origin: Origin, trace: Trace, keys: Sequence[str]) -> str:
    became = [
        f"  {key}" + ("" if isinstance(value, list) else f" = {shown(value)}")
        for key, value in trace.keys.items()
        if value is not None and key.partition(" ")[2] in keys
    ]
    files = [f"  trainer_args.json {one}" for one in keys if "[" in one]
    return "".join(f"{line}\n" for line in (head, f"  from {origin.describe()}", *became, *files))


def _value(checked: Checked, trace: Trace, row: Setting, name: str, most: int | None) -> str:
    value = trace.spec.values[row.path]
    head = f"{row.path} = {show(row, value.value)}"
    if checked.members and row.path in dict(checked.members[0].settings):
        found = [one.spec.values[row.path] for one in checked.members if one.spec is not None]
        head = f"{row.path} is swept in {name}: {', '.join(dict.fromkeys(show(row, one.value) for one in found))}"
    became = trace.keys_of(row.path)
    more = [f"and {len(became) - most} more keys"] if most is not None and len(became) > most else []
    if row.path == "lora.targets" and most is None:
        more += [f"adapts {path}" for path in adapted_paths(trace.spec)]
    lines = [f"from {value.origin.describe()}", *became[:most], *more]
    return "".join([f"{head}\n", *(f"  {line}\n" for line in lines)])
