"""Write the draft of an import as the text of a spec, in the layout of `xpc fmt`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from xpc.compiler.importing.draft import ASSUMED, Draft, Source
from xpc.compiler.language import kinds
from xpc.compiler.language.schema import ADAPTERS, BY_PATH, CLAUSES, SOURCE_SETTINGS, TABLE, Setting
from xpc.compiler.language.typed import plain, show
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.source import Source as Text

BLOCKS = ("method.vllm", "method.sync_reference")
"""Settings whose own settings are written in a block over several lines: `vllm {`, one line for each setting, `}`."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
WORDS = ("train", "on", "for", "with", "extends", "xpc", "x", "true", "false", "file")


class Unwritable(Exception):
    """Raised if a name or a path cannot be written in a spec, for example because it contains a control character."""


def emit(draft: Draft, origin: str) -> str:
    """The text of the spec. Its first comment names the imported file `origin`. Raises Unwritable if the text would
    have a syntax error.
    """
    raw = "\n".join(_lines(draft, origin)) + "\n"
    file, problems = parse(Text("import.xp", raw))
    if problems:
        raise Unwritable(_first(problems))
    return format_file(file)


def _first(problems: tuple[Diagnostic, ...]) -> str:
    one = problems[0]
    if one.primary is None:
        return f"a value cannot be written into a spec: {one.message}"
    source, start = one.primary.source, one.primary.span.start
    line = source.text[source.text.rfind("\n", 0, start) + 1 :].partition("\n")[0].strip()
    return f"`{line[:100]}` cannot be written into a spec: {one.message}"


def _lines(draft: Draft, origin: str) -> list[str]:
    out = ["xpc 1", "", f"# From {_shown(origin)}"]
    named = len(draft.sources) != 1 or draft.sources[0].columns or draft.sources[0].take or draft.sources[0].limit
    duration = ""
    for path, unit in (("train.epochs", "epochs"), ("train.steps", "steps")):
        if draft.has(path):
            duration = f" for {draft.settings[path].text} {unit}"
    if draft.model and draft.sources:
        out.append(f"train {draft.model} on {'corpus' if named else draft.sources[0].ref}{duration}")
    elif draft.decisions or duration:
        data = draft.sources[0].ref if draft.sources else "DATA"
        out.append(f"# train {_shown(draft.model or 'MODEL')} on {_shown(data)}{_shown(duration)}")
    out.append("")
    adapter = next((name for name in reversed(ADAPTERS) if draft.has(name)), "lora")
    for clause in CLAUSES:
        if clause == "nodes" and draft.value("nodes") == "1":
            continue
        if clause in ("train", "extra") or (clause in ADAPTERS and clause != adapter):
            continue
        if clause == "data":
            out += _data(draft, draft.sources if named else [])
        else:
            out += _clause(draft, clause, "lora" if clause in ADAPTERS else clause)
    if draft.sweep:
        out += ["sweep {", *(f"{_swept(path)} = [{', '.join(texts)}]" for path, texts in draft.sweep.items()), "}", ""]
    for library, table in draft.extra.items():
        out += _extra(library, table)
    comments = {
        "Parts of the imported file that need your decision": map(_shown, draft.undecided),
        "Defaults that differ among the versions of TRL for which the imported file may be written": _reasons(
            draft.dated
        ),
        "Keys of the imported file that have no effect in this spec": [
            f"{_shown(line)}  ({why})" for line, why in draft.later.items()
        ],
        "Differences between a run of this spec and a run of the imported file with its own tool": _reasons(
            draft.differences
        ),
    }
    for title, lines in comments.items():
        listed = [f"# {one}" for one in lines]
        out += [f"# {title}:", *listed] if listed else []
    return out


def _reasons(named: Mapping[str, str]) -> list[str]:
    return [f"{_shown(name)}: {_shown(why)}" for name, why in named.items()]


def _swept(path: str) -> str:
    """The name of a setting in a sweep. It is the last part of the setting's path if no other path ends with it, and
    otherwise the complete path.
    """
    name = path.rpartition(".")[2]
    return name if sum(row.name == name for row in TABLE) == 1 or path == "model" else path


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _clause(draft: Draft, clause: str, settings: str) -> list[str]:
    row = BY_PATH.get(clause)
    head = draft.settings.get(clause)
    inner = _inside(draft, settings)
    if not inner and (head is None or (clause == "method" and row is not None and head.text == row.default)):
        return []
    title = clause
    if head is not None and row is not None and (row.kind is not kinds.FLAG or head.text == "false"):
        title = f"{clause} {head.text}"
    elif row is not None and row.head and head is None and row.kind is not kinds.FLAG and row.default is not None:
        # omit the clause's own value if it is the default: `optimizer { lr = 1e-5 }`
        title = clause
    return [title, ""] if not inner else [f"{title} {{", *inner, "}", ""]


def _inside(draft: Draft, clause: str) -> list[str]:
    out: list[str] = []
    for row in _below(clause):
        children = _children(draft, row.path)
        if row.path.count(".") > 1 or not (children or draft.has(row.path)):
            continue
        written = draft.settings.get(row.path)
        if row.kind is not kinds.FLAG:
            assert written is not None
            out.append(f"{row.name} = {_typed(row, written.text)}")
        elif written is not None and written.text == "false":
            # omit a switch that is off by default
            out += [f"{row.name} = false"] if children or row.default is not False or row.path in ASSUMED else []
        elif children and row.path in BLOCKS:
            out += [f"{row.name} {{", *(f"{name} = {value}" for name, value in children), "}"]
        elif children:
            out.append(f"{row.name}({', '.join(f'{name}={value}' for name, value in children)})")
        else:
            out.append(row.name)
    return out


NAMED = (kinds.NAME, kinds.NAMES, kinds.TASKS, kinds.TARGETS)


def _typed(row: Setting, written: str) -> str:
    """A value as people type it: `[q_proj]` without quotes, a single loss without brackets, and `500M` elements."""
    if row.path == "method.loss" and NAME.fullmatch(written[1:-1]):
        return written[1:-1]
    if row.path.startswith("strategy."):
        return _large(written)
    return _bare(written) if row.kind in NAMED else written


def _large(written: str) -> str:
    """`1B` for 1000000000, and `500M` for 500000000; other numbers are unchanged."""
    return re.sub(r"^(\d+?)000000(000)?$", lambda found: found[1] + ("B" if found[2] else "M"), written)


def _bare(typed: str) -> str:
    """Remove the quotes around names that need none: `["q_proj"]` becomes `[q_proj]`."""

    def one(found: re.Match[str]) -> str:
        name = found[1]
        return name if NAME.fullmatch(name) and name not in WORDS else found[0]

    return re.sub(r'"((?:[^"\\]|\\.)*)"', one, typed)


def _children(draft: Draft, path: str) -> list[tuple[str, str]]:
    return [(one.name, draft.settings[one.path].text) for one in _below(path) if draft.has(one.path)]


@cache
def _below(path: str) -> tuple[Setting, ...]:
    return tuple(one for one in TABLE if one.path.startswith(path + "."))


def _data(draft: Draft, sources: list[Source]) -> list[str]:
    inner: list[str] = []
    for one in sources:
        lines = [f"format = {one.format}"] if one.format else []
        if one.columns:
            lines.append(f"columns = {_bare(plain(one.columns))}")
        if one.context is not None:
            lines.append(f"context = {_bare(plain(one.context))}")
        lines += ["chat"] * one.chat
        if one.take is not None:
            lines.append(f"take = {_amount('take', one.take)}")
        if one.share is not None:
            lines.append(f"share = {_amount('share', kinds.Amount('share', one.share))}")
        if one.limit is not None:
            lines.append(f"limit = {one.limit}")
        inner += [f"{one.ref} {{", *lines, "}"] if lines else [one.ref]
    inner += _inside(draft, "data")
    if not inner:
        return []
    return [f"data{' corpus' if sources else ''} {{", *inner, "}", ""]


def _amount(name: str, value: kinds.Amount) -> str:
    return show(SOURCE_SETTINGS[name], value)


def _extra(library: str, table: dict[str, str]) -> list[str]:
    tree: dict[str, object] = {}
    for name, value in table.items():
        *path, last = name.split(".")
        location = tree
        for part in path:
            location = location.setdefault(part, {})  # type: ignore[assignment]
        location[last] = value
    return [f"extra {library} {{", *_nested(tree), "}", ""]


def _nested(tree: dict[str, object]) -> list[str]:
    out: list[str] = []
    for name, value in tree.items():
        if isinstance(value, dict):
            out += [f"{name} {{", *_nested(value), "}"]
        else:
            out.append(f"{name} = {_large(str(value))}")
    return out
