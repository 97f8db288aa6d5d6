"""Spec to `spec.xp`: the experiment as compiled, bases inlined, every setting on a line with where it came from."""

from __future__ import annotations

from xpc.compiler.language import kinds as k
from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.language.schema import ADAPTERS, TABLE, Setting
from xpc.compiler.spec import DataSource, EvalSet, Spec
from xpc.compiler.templates import built_in

STRUCTURAL = ("train.epochs", "train.steps")


def specfile(spec: Spec) -> str:
    """The text. It parses, and where the spec names no local file it compiles to the same arguments."""
    lines = ["xpc 1", ""]
    model = quoted(spec.model.path) if spec.model.path is not None else str(spec.model.id)
    steps = spec.get("train.steps")
    budget = f"{steps} steps" if isinstance(steps, int) else f"{_real(spec.real('train.epochs'))} epochs"
    origin = spec.values["train.steps" if isinstance(steps, int) else "train.epochs"].origin.describe()
    lines += [f"train {model} on {_corpus(spec)} for {budget}  # length: {_comment(origin)}", ""]
    lines += _data(spec)
    for one in spec.evaluated:
        lines += _evaluated(one)
    flat = [row for row in TABLE if row.head and "." not in row.path and row.path in spec.values]
    clauses = dict.fromkeys(row.path.partition(".")[0] for row in TABLE)
    adapters = [name for name in ADAPTERS if name in spec.values]
    adapter = spec.adapter if spec.lora or not adapters else adapters[0]
    out = _left_out(spec)
    there = [row for row in TABLE if "." in row.path and row.path in spec.values and row.path not in out]
    for clause in clauses:
        if clause == "data" or (clause == "lora" and clause != adapter):
            continue
        settings = "lora" if clause == adapter else clause
        inner = [row for row in there if row.path.startswith(settings + ".")]
        if clause == "launch":
            inner = [row for row in inner if _is_read(spec, row.name)]
        head = next((row for row in flat if row.path == clause), None)
        if head is None and not inner:
            continue
        lines += _clause(spec, clause, head, inner)
    for escape, table in spec.extra.items():
        lines += [f"extra {escape} {{", *(f"  {line}" for line in _extra(table)), "}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _is_read(spec: Spec, name: str) -> bool:
    """Whether the launcher reads a setting: a base may have written it for one that its child replaced."""
    from xpc.compiler.clusters import READ_BY

    engine = spec.text("launch")
    return engine in READ_BY.get(name, (engine,))


def _left_out(spec: Spec) -> tuple[str, ...]:
    """Settings that the header states, and a `seq` that does not hold and so is not legal to write."""
    if spec.online:
        return (*STRUCTURAL, "batch.seq")
    uncut = spec.flag("batch.padding_free") and not spec.flag("batch.packing") and not spec.written("batch.seq")
    return (*STRUCTURAL, "batch.seq") if uncut else STRUCTURAL


def _extra(table: object) -> list[str]:
    assert isinstance(table, dict)
    return [
        f"{name} = {plain(value.value, exact=True)}  # {_comment(value.origin.describe())}"
        for name, value in table.items()
        if "." not in name
    ] + [
        line
        for group in dict.fromkeys(name.partition(".")[0] for name in table if "." in name)
        for line in [
            f"{group} {{",
            *(
                f"  {name.partition('.')[2]} = {plain(table[name].value, exact=True)}"
                for name in table
                if name.startswith(group + ".")
            ),
            "}",
        ]
    ]


def _clause(spec: Spec, clause: str, head: Setting | None, inner: list[Setting]) -> list[str]:
    plainly = head is None or (head.kind is k.FLAG and spec.get(head.path) is True)
    title = clause if head is None or plainly else f"{clause} {show(head, spec.get(head.path))}"
    note = "" if head is None else f"  # {_comment(spec.values[head.path].origin.describe())}"
    if not inner:
        return [f"{title}{note}", ""]
    out = [f"{title} {{{note}"]
    nested = [row for row in inner if row.path.count(".") == 2]
    for row in inner:
        if row in nested:
            continue
        value = spec.values[row.path]
        origin = _comment(value.origin.describe())
        mine = [one for one in nested if one.path.startswith(row.path + ".")]
        if mine and value.value is True:
            inside = ", ".join(f"{one.name}={show(one, spec.get(one.path))}" for one in mine)
            out.append(f"  {row.name}({inside})  # {origin}")
        else:
            out.append(f"  {row.name} = {show(row, value.value)}  # {origin}")
            for one in mine:  # what counts without it, as `packing.eval`
                found = spec.values[one.path]
                if spec.written(one.path):
                    note = _comment(found.origin.describe())
                    out.append(f"  {row.name}.{one.name} = {show(one, found.value)}  # {note}")
    return [*out, "}", ""]


def _data(spec: Spec) -> list[str]:
    out = [f"data {_corpus(spec)} {{", *_sources(spec.data)]
    shapes = {source.wording or source.shape for source in spec.data}
    if "data.format" not in spec.values and len(shapes) == 1:
        out.append(f"  format = {next(iter(shapes))}  # registry, or the first row")
    for row in TABLE:
        if row.clause == "data" and row.path in spec.values:
            value = spec.values[row.path]
            out.append(f"  {row.name} = {show(row, value.value)}  # {_comment(value.origin.describe())}")
    return [*out, "}", ""]


def _corpus(spec: Spec) -> str:
    """The name of the block that is trained on: none that a set to evaluate on has."""
    taken, name = {one.name for one in spec.evaluated}, "corpus"
    while name in taken:
        name += "_"
    return name


def _sources(sources: tuple[DataSource, ...]) -> list[str]:
    out = []
    for source in sources:
        inside = [f"take = {_amount(source.take)}"] if source.take is not None else []
        if source.only and source.columns is not None:
            asked, *rest = source.columns
            between = [source.context] if source.wording and source.context else []
            inside.append("columns = [" + ", ".join(quoted(name) for name in (asked, *between, *rest)) + "]")
        if source.context is not None and source.wording is None:
            inside.append(f"context = {quoted(source.context)}")
        ref = _ref(source)
        out += [f"  {ref} {{", *(f"    {line}" for line in inside), "  }"] if inside else [f"  {ref}"]
    return out


def _evaluated(one: EvalSet) -> list[str]:
    """A block of rows that `eval` names."""
    shapes = {source.wording or source.shape for source in one.sources}
    shape = [f"  format = {next(iter(shapes))}"] if len(shapes) == 1 else []
    prompt = [] if one.prompt is None else [f"  prompt = {quoted(one.prompt)}"]
    return [f"data {one.name} {{", *_sources(one.sources), *shape, *prompt, "}", ""]


def _ref(source: DataSource) -> str:
    if source.path is not None:
        return quoted(source.path)
    config = "" if source.config is None else f":{source.config}"
    part = "" if source.slice is None else f":{source.slice}"
    revision = "" if source.revision is None else f"@{source.revision}"
    return f"{source.id}{config}[{source.split}{part}]{revision}"


def show(row: Setting, value: object) -> str:
    """A value as it is typed."""
    if row.kind is k.TEMPLATE and built_in(str(value)) is not None:
        return str(built_in(str(value)))
    if row.kind in (k.FILE, k.TEMPLATE):
        return f"file({quoted(str(value))})"
    if isinstance(value, Amount):
        return _amount(value)
    if row.kind is k.DURATION:
        return f"{value}s"
    if row.kind is k.WEIGHTED and isinstance(value, tuple):
        return "[" + ", ".join(_weighted(one) for one in value) + "]"
    if row.kind is k.TARGETS and isinstance(value, str):
        return value
    if row.kind in (k.CHOICE, k.HARDWARE) or row.path == "target":
        return str(value)
    if row.kind is k.SOURCES:
        return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
    if row.kind is k.CHOICES and isinstance(value, tuple):
        return " ".join(str(one) for one in value)
    return plain(value)


def _weighted(one: Weighted) -> str:
    """A loss or a reward function; one of a file is named by the copy in the bundle."""
    if one.function is None:
        return one.name if one.weight is None else f"{one.name}(weight={_real(one.weight)})"
    name = quoted(f"{one.file}:{one.function}")
    return name if one.weight is None else f"file({name}, weight={_real(one.weight)})"


def plain(value: object, exact: bool = False) -> str:
    """Plain data as the language writes it. `exact` keeps 1.0 apart from 1, which arguments of `extra` do."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if exact else _real(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(plain(one, exact) for one in value) + "]"
    return quoted(value) if isinstance(value, str) else str(value)


def _real(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 10**15 else repr(value)


def _amount(amount: Amount) -> str:
    if amount.unit in ("epoch", "never"):
        return amount.unit
    if amount.unit == "share":
        percent = round(amount.value * 100, 10)
        return f"{_real(percent)}%"
    return _real(float(amount.value)) if isinstance(amount.value, float) else str(amount.value)


def quoted(text: str) -> str:
    """A text between quotes, escaped as the language reads it."""
    out = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{out}"'


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
