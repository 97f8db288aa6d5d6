"""What to say of a name that is no setting where it stands. Loaded only when there is one."""

from __future__ import annotations

from xpc.compiler import schema, targets
from xpc.compiler.kinds import BLOCK, FLAG
from xpc.compiler.schema import Setting
from xpc.compiler.suggest import FOREIGN, nearest, owner_name
from xpc.grammar.record import record


@record
class Misnamed:
    """A finding without its place: code, message, the label's text, a help and the text that replaces the name."""

    code: str
    message: str
    text: str = ""
    help: str = ""
    edit: str | None = None


def misnamed(name: str, clause: str | None, value: str | None) -> Misnamed:
    """The finding for a name in a clause (None: in `with` or the body). `value` is what was assigned, as typed."""
    shown = name[:60]
    rows = [row for row in schema.TABLE if row.name == name]
    choice = schema.bare_choices().get(name)
    if clause is None:
        if rows:
            ways = [f"`{typed(row, value)}`" for row in rows]
            return Misnamed("XP102", f"`{shown}` belongs inside a clause", help="write " + " or ".join(ways))
        if choice is not None:
            return Misnamed(
                "XP104",
                f"`{shown}` is a choice of `{choice}`, and takes no value",
                help=f"write `{name}` alone, or `{choice.rpartition('.')[2]} = {name}`",
            )
        return _unknown(name, None)
    if clause in schema.BY_PATH and schema.BY_PATH[clause].kind is FLAG and _is_beside(name, clause):
        return Misnamed(
            "XP102",
            f"`{shown}` is not a setting of `{clause.rpartition('.')[2]}`",
            help=f"a block holds one setting a line: write `{name}` on the next",
        )
    if clause == "data" and name in schema.SOURCE_SETTINGS:
        return Misnamed(
            "XP102", f"`{shown}` belongs to a source", help=f"write `SOURCE({name}={value or '...'})` for each source"
        )
    if rows or choice is not None or name in schema.CLAUSES:
        near = nearest(name, _candidates(clause)) if all(row.pending for row in rows) and choice is None else None
        if near is None:
            return _elsewhere(name, clause, rows, choice, value)
    return _unknown(name, clause)


def _is_beside(name: str, flag: str) -> bool:
    """Whether the name is a setting of the clause around a flag: `liger checkpointing` on one line."""
    around = flag.rpartition(".")[0]
    return bool(around) and f"{around}.{name}" in schema.BY_PATH


def _elsewhere(name: str, clause: str, rows: list[Setting], choice: str | None, value: str | None) -> Misnamed:
    message = f"`{name[:60]}` is not a setting of `{clause}`"
    if name in schema.CLAUSES:
        return Misnamed("XP102", message, help=f"`{name}` stands on its own, outside of `{clause}`")
    if choice is not None:
        home = choice.partition(".")[0]
        return Misnamed("XP102", message, help=f"it belongs to `{home}`: write `{name}` outside of `{clause}`")
    home = rows[0].path.partition(".")[0]
    return Misnamed(
        "XP102", message, help=f"it belongs to `{home}`: write `{typed(rows[0], value)}` outside of `{clause}`"
    )


def _unknown(name: str, clause: str | None) -> Misnamed:
    known = _candidates(clause)
    if clause is None and name in targets.names():
        return Misnamed("XP101", f"`{name}` is a target", help=f"write `target={name}`", edit=f"target={name}")
    ours = name.lower() if name.lower() in known else owner_name(name)
    if ours is None or (clause is not None and ours not in known):
        ours = nearest(name, known) or ours
    where = f"of `{clause}`" if clause else "of the language"
    message = f"`{name[:60]}` is not a setting {where}"
    if ours is None:
        listed = ", ".join(known[:12])
        return Misnamed(
            "XP101",
            message,
            help=f"`{clause}` has {listed}" if clause and known else "docs/reference.md lists them all",
        )
    if ours in known:
        return Misnamed("XP101", message, f"did you mean `{ours}`?", f"write `{ours}`", ours)
    owner = None if ours in FOREIGN.values() else schema.owner_of(name)
    rows = [row for row in schema.TABLE if row.name == ours] if owner is None else [owner]
    form = typed(rows[0], None) if rows else ours
    outside = f" outside of `{clause}`" if clause else ""
    return Misnamed("XP101", message, f"did you mean `{form}`?", f"write `{form}`{outside}")


def _candidates(clause: str | None) -> list[str]:
    if clause is not None:
        return [row.name for row in schema.children(clause)]
    return [*(c for c in schema.CLAUSES if c != "train"), *schema.outer_names(), *schema.bare_choices()]


def typed(row: Setting, value: str | None) -> str:
    """A setting as it may be typed anywhere outside of a clause: `gbs=528`, `save(every=100)`."""
    if row.kind is BLOCK:
        return f"{row.name} {{"
    form = row.name if row.kind is FLAG and value in (None, "true") else f"{row.name}={value or example(row)}"
    if not row.inner:
        return form
    outer = row.path.rpartition(".")[0].split(".")
    for part in reversed(outer):
        form = f"{part}({form})"
    return form.partition("(")[2][:-1] if len(outer) > 1 else form


def example(row: Setting) -> str:
    """A legal value of a setting: its default where that can be typed, else one of its kind."""
    default = row.default
    if row.path == "target":
        return targets.DEFAULT
    if row.choices:
        return row.choices[0]
    if isinstance(default, int | float) and not isinstance(default, bool):
        return f"{default}s" if row.kind.name == "duration" else f"{default:g}"
    return row.kind.example
