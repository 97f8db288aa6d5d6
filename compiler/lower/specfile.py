"""Write the bundle's `spec.xp`, which states the compiled experiment without `extends`, with one setting per line.

If the user's spec does not state a setting itself, the line of the setting has a comment with its origin: the extended
spec, the default or a derivation.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from xpc.compiler.data.shapes import as_chat
from xpc.compiler.language import kinds as k
from xpc.compiler.language.items import SPEC
from xpc.compiler.language.launch_settings import readers
from xpc.compiler.language.schema import ADAPTERS, BY_PATH, TABLE, Setting
from xpc.compiler.language.typed import amount, plain, real, show
from xpc.compiler.spec import Spec
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.resources import DataSource, EvalSet
from xpc.compiler.spec.values import Value
from xpc.grammar.diagnostic import Label
from xpc.grammar.tree import quoted

STRUCTURAL = ("train.epochs", "train.steps")


def specfile(spec: CheckedSpec) -> str:
    """The text of the bundle's `spec.xp`. Compiling this text gives the same arguments again, unless the spec names
    local files.

    If the user's spec silences a finding, this text also silences it, with a comment above the clause with the finding.
    """
    lines = ["xpc 1", ""]
    model = quoted(spec.model.path) if spec.model.path is not None else str(spec.model.id)
    steps = spec.get("train.steps")
    budget = f"{steps} steps" if isinstance(steps, int) else f"{real(spec.real('train.epochs'))} epochs"
    note = _note(spec.values["train.steps" if isinstance(steps, int) else "train.epochs"], "length: ")
    lines += [f"train {model} on {_corpus(spec)} for {budget}{note}", ""]
    lines += _data(spec)
    for one in spec.evaluated:
        lines += _evaluated(spec, one)
    adapters = [name for name in ADAPTERS if name in spec.values]
    adapter = spec.adapter if spec.lora or not adapters else adapters[0]
    out = _excluded(spec)
    for clause in _clauses():
        if clause == "data" or (clause == "lora" and clause != adapter):
            continue
        rows = _clauses()["lora" if clause == adapter else clause]
        inner = [row for row in rows if row.path in spec.values and row.path not in out]
        if clause == "launch":
            # leave out settings of other engines; they come from the extended spec, and this run does not use them
            inner = [row for row in inner if spec.text("launch") in readers(row)]
        head = BY_PATH.get(clause) if clause in spec.values else None
        if head is None and not inner:
            continue
        lines += _clause(spec, clause, head, inner)
    for library, table in spec.extra.items():
        lines += [f"extra {library} {{", *(f"  {line}" for line in _extra(table)), "}", ""]
    for silence in spec.silenced:
        begin = _clause_of(spec, silence.finding.primary)
        at = next((at for at, line in enumerate(lines) if line.partition(" {")[0].startswith(begin)), 2)
        note = f"# xpc: allow {silence.finding.code} {silence.reason}"
        if note not in lines:
            lines.insert(at, note)
    return "\n".join(lines).rstrip("\n") + "\n"


@cache
def _clauses() -> dict[str, list[Setting]]:
    """Group the settings by clause, in the order of the table of settings."""
    found: dict[str, list[Setting]] = {}
    for row in TABLE:
        clause, inside, _ = row.path.partition(".")
        found.setdefault(clause, []).extend([row] if inside else [])
    return found


def _clause_of(spec: Spec, location: Label | None) -> str:
    """The first word of the line in spec.xp above which a comment must stand to silence a finding. The word is the
    clause of the setting at the finding's location, or `train ` if no setting is there.
    """
    if location is None:
        return "train "

    def there(label: Label | None) -> bool:
        if label is None or label.source.name != location.source.name:
            return False
        return label.span.start < location.span.end and location.span.start < label.span.end

    for path, value in spec.values.items():
        if there(value.origin.label):
            clause = path.partition(".")[0]
            return spec.adapter if clause == "lora" else clause
    for library, table in spec.extra.items():
        if any(there(value.origin.label) for value in table.values()):
            return f"extra {library}"
    return "data " if any(there(source.label) for source in spec.data) and not there(spec.model.label) else "train "


def _excluded(spec: Spec) -> tuple[str, ...]:
    """The settings that the written spec does not repeat. These are the settings of the `train` line, and a `batch.seq`
    without effect, which a rule would refuse.
    """
    if spec.online:
        return (*STRUCTURAL, "batch.seq")
    uncut = spec.flag("batch.padding_free") and not spec.flag("batch.packing") and not spec.written("batch.seq")
    return (*STRUCTURAL, "batch.seq") if uncut else STRUCTURAL


def _extra(table: Mapping[str, Value]) -> list[str]:
    """The lines of an `extra` block. A name with a dot, such as `a.b`, becomes the line `b = ...` of a block `a`, and
    the blocks are the last lines.
    """
    lines: list[str] = []
    blocks: dict[str, list[str]] = {}
    for name, value in table.items():
        first, dot, rest = name.partition(".")
        line = f"{rest or name} = {plain(value.value, exact=True)}{_note(value)}"
        if dot:
            blocks.setdefault(first, []).append(f"  {line}")
        else:
            lines.append(line)
    return [*lines, *(line for block, inner in blocks.items() for line in (f"{block} {{", *inner, "}"))]


def _clause(spec: Spec, clause: str, head: Setting | None, inner: list[Setting]) -> list[str]:
    plainly = head is None or (head.kind is k.FLAG and spec.get(head.path) is True)
    title = clause if head is None or plainly else f"{clause} {show(head, spec.get(head.path))}"
    note = "" if head is None else _note(spec.values[head.path])
    if not inner:
        return [f"{title}{note}", ""]
    out = [f"{title} {{{note}"]
    nested = [row for row in inner if row.path.count(".") == 2]
    for row in inner:
        if row.path.count(".") == 2:
            continue
        value = spec.values[row.path]
        parts = [one for one in nested if one.path.startswith(row.path + ".")]
        on, note = value.value is True, _note(value)
        alike = [one for one in parts if on and _note(spec.values[one.path]) == note]
        if alike:
            inside = ", ".join(f"{one.name}={show(one, spec.get(one.path))}" for one in alike)
            out.append(f"  {row.name}({inside}){note}")
        else:
            out.append(f"  {row.name} = {show(row, value.value)}{note}")
        # A setting inside of a flag, such as `packing.eval` in `packing`, gets its own line if its origin differs from
        # the flag's origin. If the flag is off, only settings that the user wrote get a line, because they may have an
        # effect even so.
        for one in parts:
            if one not in alike and (on or spec.written(one.path)):
                found = spec.values[one.path]
                out.append(f"  {row.name}.{one.name} = {show(one, found.value)}{_note(found)}")
    return [*out, "}", ""]


def _data(spec: Spec) -> list[str]:
    stated = spec.get("data.format") or _one_format(spec.data)
    out = [f"data {_corpus(spec)} {{", *_sources(spec, spec.data, stated)]
    if "data.format" not in spec.values and stated is not None:
        out.append(f"  format = {stated}  # registry, or the first row of the data")
    for row in TABLE:
        if row.path in spec.values and row.clause == "data":
            value = spec.values[row.path]
            out.append(f"  {row.name} = {show(row, value.value)}{_note(value)}")
    return [*out, "}", ""]


def _one_format(sources: tuple[DataSource, ...]) -> str | None:
    """The format of the rows if all sources have the same format, otherwise None."""
    found = {_format(source) for source in sources}
    return next(iter(found)) if len(found) == 1 else None


def _format(source: DataSource) -> str:
    return source.wording or source.shape


def _corpus(spec: Spec) -> str:
    """The title of the block of training data: one that no evaluation set has, such as `corpus`."""
    taken, name = {one.name for one in spec.evaluated}, "corpus"
    while name in taken:
        name += "_"
    return name


def _sources(spec: Spec, sources: tuple[DataSource, ...], stated: object) -> list[str]:
    """The lines for the sources in a `data` block. `stated` is the value of the block's own setting `format`."""
    out = []
    for source in sources:
        inside = [] if _format(source) == stated else [f"format = {_format(source)}"]
        if source.chat != (spec.flag("data.chat") and as_chat(source).chat):
            inside.append(f"chat = {str(source.chat).lower()}")
        if source.take is not None:
            inside.append(f"take = {amount(source.take)}")
        if source.share is not None:
            inside.append(f"share = {amount(k.Amount('share', source.share))}")
        if source.limit is not None:
            inside.append(f"limit = {source.limit}")
        if source.only and source.columns is not None:
            first, *rest = source.columns
            between = [source.context] if source.wording and source.context else []
            inside.append("columns = [" + ", ".join(quoted(name) for name in (first, *between, *rest)) + "]")
        if source.context is not None and source.wording is None:
            inside.append(f"context = {quoted(source.context)}")
        named = ref(source)
        out += [f"  {named} {{", *(f"    {line}" for line in inside), "  }"] if inside else [f"  {named}"]
    return out


def _evaluated(spec: Spec, one: EvalSet) -> list[str]:
    """The lines of a `data` block for evaluation."""
    stated = _one_format(one.sources)
    shape = [] if stated is None else [f"  format = {stated}"]
    prompt = [] if one.prompt is None else [f"  prompt = {quoted(one.prompt)}"]
    return [f"data {one.name} {{", *_sources(spec, one.sources, stated), *shape, *prompt, "}", ""]


def ref(source: DataSource) -> str:
    """A data source as it is written in a spec: `org/rows:config[split]@revision`, or a quoted path."""
    if source.path is not None:
        return quoted(source.path)
    config = "" if source.config is None else f":{source.config}"
    part = "" if source.slice is None else f":{source.slice}"
    revision = "" if source.revision is None else f"@{source.revision}"
    return f"{source.id}{config}[{source.split}{part}]{revision}"


def _note(value: Value, before: str = "") -> str:
    """The comment after a value that the compiler added. It names the origin of the value: `# default`, for example. ""
    for a value that the user's spec states itself.
    """
    if value.origin.kind == SPEC:
        return ""
    name = value.origin.name
    return f"  # {before}{name if name.isprintable() else ''.join(c if c.isprintable() else '?' for c in name)}"
