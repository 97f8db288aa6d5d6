"""What to say of a name that is no setting where it stands. Loaded only when there is one."""

from __future__ import annotations

from xpc.compiler import stacks
from xpc.compiler.language import schema
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import Item
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import Wrong
from xpc.compiler.suggest.example import example
from xpc.compiler.suggest.extra_form import passed
from xpc.compiler.suggest.legal import answer
from xpc.compiler.suggest.meaning import NEVER, SAME, Meaning, choice, meaning, nearest_elsewhere
from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT, advice, own_reason, reason
from xpc.compiler.suggest.typed_form import Said, meant_value, typed, value_of, written
from xpc.grammar.record import evolve, record

MOST = 50
"""Misspelt names of a file that are thought about; the rest of a file of nothing else is only named."""
BEHIND = {"split": "[{}]", "subset": ":{}", "config": ":{}", "revision": "@{}", "name": ":{}"}
"""What stands behind a dataset's name, as other tools call it."""
PARTS = {
    "completion": ("prompt", "completion"), "chosen": ("prompt", "chosen", "rejected"),
    "rejected": ("prompt", "chosen", "rejected"), "messages": ("messages",), "conversations": ("conversations",),
    "text": ("text",), "label": ("prompt", "completion", "label"),
}  # fmt: skip
"""Parts of a row that somebody names one by one."""
SOURCES = ("path", "paths", "file", "files", "data_files", "dataset", "datasets", "source", "sources")
"""What other tools write before the name of a source."""
NAMED = ("name", "type", "kind")
"""What others write before the choice of a clause."""
HEADER = "it begins the spec: `train MODEL on DATA for 3 epochs`"
READERS = {"accelerate": ", which `strategy fsdp` reads", "deepspeed": ", which `strategy zero2` or `zero3` reads"}


@record
class Misnamed:
    """A finding without its place: code, message, the label's text, a help and an edit.

    The edit replaces the name, or with `whole` the name and its value. `meant` is the path of the setting that it is.
    """

    code: str
    message: str
    text: str = ""
    help: str = ""
    edit: str | None = None
    whole: bool = False
    meant: tuple[str, ...] = ()


def misnamed(said: Said, count: int = 0) -> Misnamed:
    """The finding for a name. `count` is how many the file had before."""
    if count >= MOST:
        return Misnamed("XP101", f"`{said.name[:60]}` is not a setting", help="docs/reference.md lists them all")
    return _outside(said) if said.clause is None else _inside(said, said.clause)


def _outside(said: Said) -> Misnamed:
    name = said.name
    if name == "train":
        return Misnamed("XP101", "`train` is not a setting", help=HEADER)
    if name in schema.SOURCE_SETTINGS and f"data.{name}" not in schema.BY_PATH:
        return _of_a_source(said)
    rows = sorted((row for row in schema.TABLE if row.name == name), key=lambda row: row.path.count("."))
    exact = meaning(name, exact=True)
    special = bool(rows) and all(row.methods for row in rows)
    if rows and not (exact is not None and (special or exact.path.startswith("train"))):
        ways = [f"`{written(row, said)}`" for row in rows]
        alone = written(rows[0], said) if len(rows) == 1 else None
        return Misnamed(
            "XP102", f"`{name[:60]}` belongs inside a clause", help="write " + _either(ways), edit=alone, whole=True
        )
    path = schema.bare_choices().get(name)
    if path is not None:
        return Misnamed(
            "XP104",
            f"`{name[:60]}` is a choice of `{path}`, and takes no value",
            help=f"write `{name}` alone, or `{path.rpartition('.')[2]} = {name}`",
            edit=name if said.typed not in ("false", "no", "off") else None,
            whole=True,
        )
    return _unknown(said, None)


def _inside(said: Said, clause: str) -> Misnamed:
    name = said.name
    shown = name[:60]
    if name == "train":
        return Misnamed("XP102", f"`train` is not a setting of `{clause}`", help=HEADER)
    if clause in schema.BY_PATH and schema.BY_PATH[clause].kind is FLAG and _is_beside(name, clause):
        return Misnamed(
            "XP102",
            f"`{shown}` is not a setting of `{clause.rpartition('.')[2]}`",
            help=f"write `{name}` on the next line, or after a comma where the block stands on one line",
        )
    if clause == "data" and name in PARTS:
        order = ", ".join((said.typed or one) if one == name else one.upper() for one in PARTS[name])
        return Misnamed(
            "XP101",
            f"`{shown}` is not a setting of `data`",
            help=f"write `columns = [{order}]`: the names of the rows' columns, in this order",
        )
    if clause == "data" and name in SOURCES:
        source = said.typed if said.typed and said.typed[:1] != "[" else '"rows.jsonl"'
        return Misnamed(
            "XP101",
            f"`{shown}` is not a setting of `data`",
            help=f"write `{source}` on a line of its own in the block: it is a source; without a block, `on {source}`",
        )
    chosen = _chosen(said, clause)
    if chosen is not None:
        return Misnamed("XP102", f"`{shown}` is not a setting of `{clause}`", help=f"write `{clause} {chosen}`")
    if clause == "data" and name in BEHIND:
        value = (said.typed or "...").strip('"')
        return Misnamed(
            "XP102",
            f"`{shown}` is no setting of `data`: it stands behind the dataset's name",
            help=f"write `SOURCE{BEHIND[name].format(value)}` on the source's line",
        )
    together = meaning(f"{clause} {name}", exact=True)  # `limit` in `save` is `save_limit`, and not that of a source
    if name in schema.SOURCE_SETTINGS and (clause == "data" or f"data.{name}" not in schema.BY_PATH):
        if together is None or not _is_in(together.path, clause):
            return _of_a_source(said)
        return _meant(said, clause, f"`{shown}` is not a setting of `{clause}`", together)
    nothing = _nothing(f"`{shown}` is not a setting of `{clause}`", f"{clause} {name}") if clause == "save" else None
    if nothing is not None:  # `format` is that of rows everywhere else
        return nothing
    if said.node is not None and f"{clause}.{name}s" in schema.BY_PATH and f"{clause}.{name}" not in schema.BY_PATH:
        return _meant(said, clause, f"`{shown}` is not a setting of `{clause}`", Meaning(f"{clause}.{name}s", own=True))
    rows = [row for row in schema.TABLE if row.name == name and row.path not in NEVER]
    path = schema.bare_choices().get(name)
    if not (rows or path or name in schema.CLAUSES):
        return _unknown(said, clause)
    meant = meaning(name, clause)
    plural = meant is not None and meant.path == f"{clause}.{name}s"  # `beta` in `optimizer`
    if meant is not None and _is_in(meant.path, clause) and (plural or meant.likeness >= SAME):
        return _unknown(said, clause)  # other tools' name for a setting of this clause: `block_size` in `batch`
    exact = meaning(name, exact=True)
    inner = bool(rows) and all(row.inner and row.path.count(".") > 1 for row in rows)
    if inner and exact is not None and exact.path not in [row.path for row in rows]:
        message = f"`{shown}` is not a setting of `{clause}`"
        return _meant(said, clause, message, exact)  # `max_length` is vLLM's, and an argument of the trainers
    message = f"`{shown}` is not a setting of `{clause}`"
    if name in schema.CLAUSES:
        return Misnamed("XP102", message, help=f"`{name}` stands on its own, outside of `{clause}`")
    if path is not None:
        home = path.partition(".")[0]
        return Misnamed("XP102", message, help=f"it belongs to `{home}`: write `{name}` outside of `{clause}`")
    if rows[0].path.startswith("train."):
        return Misnamed("XP102", message, help=f"write `for {value_of(rows[0], said)} {name}` in the first line")
    home, forms = rows[0].path.partition(".")[0], [f"`{written(row, said)}`" for row in rows]
    if home == clause and len(rows) == 1:  # of a block inside of this one
        return _suggested(said, message, written(rows[0], said), inside=True)
    where = f"it belongs to `{home}`: " if len(rows) == 1 else ""
    return Misnamed("XP102", message, help=f"{where}write {_either(forms)} outside of `{clause}`")


def _chosen(said: Said, clause: str) -> str | None:
    """The choice of a clause's head that stands in its block: `track { wandb }`, `optimizer { name = adamw }`."""
    head = schema.BY_PATH.get(clause)
    if head is None or not head.choices or f"{clause}.{said.name}" in schema.BY_PATH:
        return None
    if said.name in head.choices:
        return said.name
    return choice(head, (said.typed or "").strip('"')) if said.name in NAMED else None


def _of_a_source(said: Said) -> Misnamed:
    """The finding for a setting of a source, which stands behind it in the data block."""
    where = " for each source" if said.clause == "data" else " in the `data` block, for each source"
    help = f"write `SOURCE({said.name}={said.typed or '...'})`{where}"
    return Misnamed("XP102", f"`{said.name}` belongs to a source", help=help)


def _either(forms: list[str]) -> str:
    return f"{', '.join(forms[:-1])} or {forms[-1]}" if len(forms) > 1 else forms[0]


def _is_beside(name: str, flag: str) -> bool:
    """Whether the name is a setting of the clause around a flag: `liger checkpointing` on one line."""
    around = flag.rpartition(".")[0]
    return bool(around) and f"{around}.{name}" in schema.BY_PATH


def _is_in(path: str, clause: str) -> bool:
    return path.rpartition(".")[0] == clause


def _unknown(said: Said, clause: str | None) -> Misnamed:
    name = said.name
    message = f"`{name[:60]}` is not a setting " + (f"of `{clause}`" if clause else "of the language")
    if clause is None and name in stacks.names():
        return Misnamed("XP101", f"`{name}` is a target", help=f"write `target={name}`", edit=f"target={name}")
    lower = name.lower()
    if lower != name and clause is None and lower in _bare():
        return Misnamed("XP101", message, f"did you mean `{lower}`?", f"write `{lower}`", lower)
    told = advice(name, said.typed or "")
    if told is not None:
        return Misnamed("XP101", message, help=told)
    meant = meaning(name, clause, valued=said.node is not None)
    exact = meant is not None and meant.likeness >= SAME
    if meant is None or not exact or not meant.own:
        files = name.startswith(("fsdp_", "zero_", "stage3_"))  # keys that only accelerate or DeepSpeed can mean
        own = files and (meant is None or meant.path == "strategy")
        found = _nothing(message, name) or (_passed(said, message) if own or not exact else None)
        found = found or (None if exact else _left_out(message, name))
        if found is not None:
            return found
    head, dot, last = name.rpartition(".")
    tracker = name.partition(".")[0]
    if dot and tracker in schema.BY_PATH["track"].choices:
        return _suggested(said, message, f"track={tracker}")  # `wandb.enabled` of deepspeed.json
    if (
        dot
        and not exact
        and (meaning(last, head or None, exact=True) or passed(last, said.node, said.typed, said.header))
    ):
        return evolve(_unknown(evolve(said, name=last), clause), message=message)
    if meant is None or not exact:
        other = nearest_elsewhere(name)
        if other is not None and (meant is None or other[1] > meant.likeness):
            return _elsewhere(said, message, other[0])
    if meant is None:
        names = [row.name for row in schema.children(clause)] if clause else []
        listed = ", ".join(names[:12])
        help = f"`{clause}` has {listed}" if names else "docs/reference.md lists them all"
        return Misnamed("XP101", message, help=help)
    return _meant(said, clause, message, meant)


def _nothing(message: str, name: str) -> Misnamed | None:
    """The finding for a name that the language has no word for, where the table of such names has it."""
    why = own_reason(name)
    return None if why is None else Misnamed("XP101", message, help=NO_EQUIVALENT + why)


def _left_out(message: str, name: str) -> Misnamed | None:
    """The finding for a name of a target's past, or one that importers leave out."""
    why = reason(name)
    return None if why is None else Misnamed("XP101", message, help=NO_EQUIVALENT + why)


def _passed(said: Said, message: str) -> Misnamed | None:
    """The finding for a name that `extra` passes on."""
    found = passed(said.name, said.node, said.typed, said.header)
    if found is None:
        return None
    outside = f" outside of `{said.clause}`" if said.clause else ""
    library = {"trl": "TRL's own", "accelerate": "accelerate's own", "deepspeed": "DeepSpeed's own"}[found.escape]
    reader = f", which `method {found.method}` reads" if found.method else READERS.get(found.escape, "")
    edit = found.form if found.fits and not outside else None
    return Misnamed("XP101", message, library, f"write `{found.form}`{outside}{reader}", edit, True)


def _elsewhere(said: Said, message: str, near: str) -> Misnamed:
    """The finding for a name that is spelt like one that `extra` passes on, or like one with no equivalent."""
    found = _passed(evolve(said, name=near), message) or _left_out(message, near)
    assert found is not None
    return evolve(found, text=f"did you mean `{near}`?")


def _bare() -> list[str]:
    """What may stand alone in the body or after `with`."""
    return [*(one for one in schema.CLAUSES if one != "train"), *schema.outer_names(), *schema.bare_choices()]


def _meant(said: Said, clause: str | None, message: str, meant: Meaning) -> Misnamed:
    return evolve(_said_of(said, clause, message, meant), meant=(meant.path,))


def _said_of(said: Said, clause: str | None, message: str, meant: Meaning) -> Misnamed:
    row = schema.BY_PATH.get(meant.path)
    if row is not None and row.kind is FLAG and "/" in (said.typed or "") and f"{row.path}.name" in schema.BY_PATH:
        meant = Meaning(f"{row.path}.name", own=True)  # `push_to_hub = "me/model"`
        row = schema.BY_PATH[meant.path]
    if row is None and meant.path in schema.CLAUSES:
        return _suggested(said, message, meant.path, meant.path, whole=False)
    if row is None or row.path.startswith("train."):
        return _suggested(said, message, _sentence(said, meant, row))
    value = _decided(row, said, meant)
    if value is None and said.node is not None and row.kind is not BLOCK and not row.pending:
        return _decides(row, said, message)
    if row.path in schema.ADAPTERS and value == "true" and (said.typed or "").strip('"') in schema.ADAPTERS:
        return _suggested(said, message, (said.typed or "").strip('"'), (said.typed or "").strip('"'))
    if meant.path == clause:  # the head, which stands on the clause's line
        return _suggested(said, message, f"{row.name} {value or example(row)}", inside=True)
    if clause is None and row.methods and "sft" not in row.methods and not row.path.startswith("method.rewards"):
        form, methods = typed(row, value), ", ".join(row.methods[:3])
        return Misnamed("XP101", message, f"did you mean `{form}`?", f"write `{form}`, which `method` {methods} reads")
    kept = value is None or value == said.typed
    if clause is not None and _is_in(meant.path, clause):
        return _suggested(said, message, row.name if kept else f"{row.name} = {value}", row.name, True, not kept)
    if clause is None and not row.inner and not meant.value:
        alone = row.head or row.kind in (FLAG, BLOCK) or bool(row.alone)
        if alone if said.node is None else (kept and row.kind is not FLAG):
            return _suggested(said, message, row.name, row.name, whole=False)
    form = value if meant.value and value and row.bare and value in row.choices else typed(row, value)
    inside = clause is not None and row.path.startswith(f"{clause}.")  # of a block inside of this one
    return _suggested(said, message, form, None if row.pending else form, inside)


def _suggested(
    said: Said, message: str, form: str, edit: str | None = None, inside: bool = False, whole: bool = True
) -> Misnamed:
    """The finding that suggests a form, in the clause where the name stands, or outside of it without an edit."""
    outside = f" outside of `{said.clause}`" if said.clause and not inside else ""
    edit = None if edit is None or outside else form
    return Misnamed("XP101", message, f"did you mean `{form}`?", f"write `{form}`{outside}", edit, whole)


def _sentence(said: Said, meant: Meaning, row: Setting | None) -> str:
    """What is no setting of a block: the header's words, a source's settings, the base."""
    if row is not None:
        return f"for {value_of(row, said)} {row.name}"
    if meant.path.startswith("data."):
        name = meant.path.rpartition(".")[2]
        return f"SOURCE({name}={said.typed if name == 'take' and said.typed else '...'})"
    return {"train": "train MODEL on DATA", "extends": 'extends "base.xp"'}.get(meant.path, meant.path)


def _decides(row: Setting, said: Said, message: str) -> Misnamed:
    """The finding for a name that means a setting, with a value that it cannot have: what it takes, and no edit."""
    from xpc.compiler.suggest.converted_values import plain, told

    assert said.node is not None
    found = convert(row, Item(row.path, said.node, said.label)) if row.kind.name == "tokens" else None
    help = (answer(found).help or "") if isinstance(found, Wrong) else ""
    what = help if help.startswith("write ") else told(row, said.name, plain(said.node, said.typed))
    such = "" if row.choices or "`" in what or what.startswith("write ") else f", such as `{typed(row, None)}`"
    return Misnamed("XP101", message, f"did you mean `{row.name}`?", f"`{row.path}` decides it: {what}{such}")


def _decided(row: Setting, said: Said, meant: Meaning) -> str | None:
    """The value to write: what the name decides, what was typed where that is legal, or what it means in our form.

    Of a name that was typed without a value, an example. None where nothing that was typed could be meant.
    """
    if meant.value == "!":
        return "true" if (said.typed or "").lower() in ("false", "no", "off") else "false"
    text = (said.typed or "").strip('"').lower()
    if meant.value and (
        said.node is None or not row.choices or text in ("true", "false", "yes", "no", "1", "0", "on", "off", "auto")
    ):
        return meant.value
    if meant.value and row.kind is not FLAG:  # what the value says goes before what the name alone would mean
        return choice(row, text)
    if meant.value:
        return meant.value
    if said.node is None:
        return None if row.kind is FLAG else example(row)
    return meant_value(row, said)
