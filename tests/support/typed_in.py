"""Apply the help text of a diagnostic to a spec as a user would: type the first solution that it names.

Example: for the help "write `zero3` instead, or raise `gbs`", the setting at the diagnostic's location becomes `zero3`.

In a help text, a solution is the word "write" followed by a piece of a spec in backticks. Other parts may follow: a
second piece (after "with" or "and"), a setting to remove (after "without"), and the block into which the piece belongs
(after "in"). The words "instead" and "outside of" mean that the setting at the diagnostic's location is removed.
Solutions are separated by `, or` and semicolons.
"""

from __future__ import annotations

import re

from xpc.compiler.language import schema
from xpc.compiler.language.expand import expand
from xpc.compiler.language.items import Item
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.grammar.diagnostic import ERROR, Diagnostic
from xpc.grammar.parse import parse
from xpc.grammar.record import evolve
from xpc.grammar.source import Source

HEAD = "xpc 1\ntrain qwen2.5-3b on infinity-instruct\n"
SOLUTIONS = re.compile(r";|,? or (?=[^`]*(?:`[^`]*`[^`]*)*$)")
OPEN = re.compile(r"\.\.\.|\b(MODEL|DATA|NAME|SOURCE|TARGET)\b")
Cut = tuple[int, int, str]


def way_out(help: str | None) -> str | None:
    """The first solution in a help text that can be typed, such as "write `zero3` instead"; None if nothing can be
    typed.
    """
    for part in SOLUTIONS.split(help or ""):
        match = re.search(r"\bwrite (?:it as )?`([^`]+)`", part)
        if match is not None:
            return None if OPEN.search(match[1]) or _is_bare(match[1]) else part
    return None


def ways_out(text: str, found: Diagnostic) -> dict[str, str]:
    """Maps each solution in a diagnostic's help that can be typed to the spec in which it is typed."""
    out = {"its edit": _cut(text, [(edit.span.start, edit.span.end, edit.text) for edit in found.edits])}
    for part in SOLUTIONS.split(found.help or ""):
        alone = "write " * part.lstrip().startswith("`") + part.strip()
        out[alone] = typed_in(text, evolve(found, help=alone, edits=())) or text
    return {solution: after for solution, after in out.items() if after != text}


def leaves_out(help: str | None) -> str:
    """The setting that a help text advises to leave out. If the help says "it" or "the name", the result is "it":
    the setting at the diagnostic's location. "" if the help does not advise to leave a setting out.
    """
    match = re.search(r"leave (?:`([^`]+)`|it|the name) out|leave out `([^`]+)`", help or "")
    return "" if match is None else match[1] or match[2] or "it"


def _without_excluded(text: str, found: Diagnostic, before: dict[str, Item]) -> str | None:
    """Remove the setting that the help advises to leave out, and return the spec. None if the help names no such
    setting, or if the spec does not have it.
    """
    assert found.primary is not None
    name = leaves_out(found.help)
    start, end = found.primary.span.start, found.primary.span.end
    if name and name != "it" and not text.startswith(name, start):
        named = re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])(\([^)]*\))?", text)
        if named is None:
            return None
        start, end = named.span()
    return _cut(text, [_setting_cut(text, start, end)]) if name else None


def _is_bare(form: str) -> bool:
    """Whether ``form`` is only the name of a setting that needs a value, such as `lr`."""
    rows = [row for row in schema.TABLE if form in (row.name, row.path)]
    return bool(rows) and all(row.kind not in (FLAG, BLOCK) and not row.alone for row in rows)


def typed_in(text: str, found: Diagnostic) -> str | None:
    """Apply the first solution in a diagnostic's help to the spec; return the new spec. None if the help contains
    nothing to type.
    """
    if found.primary is None or found.primary.source.text != text:
        return None
    if found.edits:
        return _cut(text, [(edit.span.start, edit.span.end, edit.text) for edit in found.edits])
    before = expand(parse(Source("t.xp", text))[0]).items
    part = way_out(found.help)
    if part is None:
        return _without_excluded(text, found, before)
    cuts: list[Cut] = []
    added = ""
    if "outside of" in part or "instead" in part:
        cuts.append(_setting_cut(text, found.primary.span.start, found.primary.span.end))
    for word, form in re.findall(r"(write(?: it as)?|with|and|without) `([^`]+)`", part):
        block = re.search(r"in `(extra \w+|\w+)[^`]*`", part)
        if word == "without":
            cuts += [_setting_cut(text, one.label.span.start, one.label.span.end) for path, one in before.items()
                     if path.rpartition(".")[2] == form]  # fmt: skip
        elif "next to it" in part or "beside it" in part:
            end = found.primary.span.end
            cuts.append((end, end, f"\n  {form}"))
        elif block is not None and block[1].startswith("extra "):
            added += f"{block[1]} {{\n  {form}\n}}\n"
        else:
            more, line = _settings(text, form, found, before, cuts)
            cuts += more
            added += line
    return _cut(text, cuts) + added if cuts or added else None


def _cut(text: str, cuts: list[Cut]) -> str:
    for start, end, value in sorted(cuts, reverse=True):
        text = text[:start] + value + text[end:]
    return re.sub(r"\(\s*,\s*", "(", re.sub(r",\s*(?=[,)])", "", text))


def _setting_cut(text: str, start: int, end: int) -> Cut:
    """The edit that removes the setting at this span together with its value. If nothing else is on the setting's line,
    the edit removes the line.
    """
    value = re.match(r"\([^)]*\)|\s*=\s*[^,)\n]+", text[end:])
    end += value.end() if value else 0
    first = text.rfind("\n", 0, start) + 1
    alone = not text[first:start].strip() and text[end : end + 1] in ("\n", "")
    return (first, end + 1, "") if alone else (start, end, "")


def _settings(
    text: str, form: str, found: Diagnostic, before: dict[str, Item], cuts: list[Cut]
) -> tuple[list[Cut], str]:
    """Write the settings of ``form`` into the spec: return edits of its text, and lines to append.

    A setting that the spec already has is replaced. A setting that belongs to a flag in the spec is added in brackets
    after the flag. Any other setting becomes a new line.
    """
    assert found.primary is not None
    typed = text[found.primary.span.start : found.primary.span.end]
    # in the spec, the name stands alone (such as `strategy`); ``form`` also has the value
    if form.startswith(typed + " "):
        return [(found.primary.span.start, found.primary.span.end, form)], ""
    out: list[Cut] = []
    added = ""
    new = _items(form, found)
    for path, item in new.items():
        value = item.label.source.text[item.label.span.start : item.label.span.end]
        old, flag = before.get(path), before.get(path.rpartition(".")[0])
        removed = old is not None and any(start <= old.label.span.start < end for start, end, _ in cuts)
        if old is not None and not removed:
            if schema.BY_PATH[path].kind is not FLAG or not any(other.startswith(path + ".") for other in new):
                out.append((old.label.span.start, old.label.span.end, _as_before(text, old, path, value)))
        elif flag is not None and schema.BY_PATH[path.rpartition(".")[0]].kind is FLAG:
            out.append((flag.label.span.end, flag.label.span.end, f"({value})"))
        elif not any(
            other != path and path.startswith(other + ".") for other in new if schema.BY_PATH[other].kind is FLAG
        ):
            added += _line(path, new, value)
    return out, added


def _as_before(text: str, old: Item, path: str, value: str) -> str:
    """The text that replaces a setting. It keeps the setting's style: for example, in `strategy zero2`, `fsdp` and not
    `= fsdp` replaces `zero2`.
    """
    written = text[old.label.span.start : old.label.span.end]
    if "=" in value.partition("(")[0] and "=" not in written.partition("(")[0] and schema.BY_PATH[path].head:
        return value.partition("=")[2].strip()
    return value


def _line(path: str, new: dict[str, Item], value: str) -> str:
    """A new line that states a setting: `strategy fsdp`, or with the setting's clause `optimizer(lr=1e-5)`."""
    inner = [
        one.label.source.text[one.label.span.start : one.label.span.end]
        for other, one in new.items()
        if other.startswith(path + ".") and schema.BY_PATH[path].kind is FLAG
    ]
    value = f"{value}({', '.join(inner)})" if inner else value
    if schema.BY_PATH[path].head:
        return f"{path} {value.partition('=')[2].strip() or value}\n" if value != path else f"{value}\n"
    for part in reversed(path.rpartition(".")[0].split(".")):
        value = f"{part}({value})"
    return value + "\n"


def _items(form: str, found: Diagnostic) -> dict[str, Item]:
    """The settings in ``form``. If ``form`` cannot be parsed alone, it is parsed inside a clause that has a setting
    with this name.
    """
    for way in (form, *(f"{clause} {{\n{form}\n}}" for clause in _clauses(form, found))):
        file, problems = parse(Source("help.xp", f"{HEAD}{way}\n"))
        written = expand(file)
        if not [one for one in (*problems, *written.problems) if one.severity == ERROR] and written.items:
            return written.items
    return {}


def _clauses(form: str, found: Diagnostic) -> list[str]:
    """The clauses that have a setting with the name in ``form``. The first one is the clause around the diagnostic's
    location.
    """
    name = re.split(r"[ =({]", form)[0]
    clauses = [row.path.rpartition(".")[0] for row in schema.TABLE if row.name == name and "." in row.path]
    assert found.primary is not None
    around = found.primary.source.text[: found.primary.span.end]
    return sorted(clauses, key=lambda one: (-around.rfind(one.rpartition(".")[2]), one.count(".")))
