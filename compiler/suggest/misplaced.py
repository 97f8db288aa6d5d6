"""What to say of a name that is no setting where it stands. Loaded only when there is one."""

from __future__ import annotations

import re

from xpc.compiler import stacks
from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.language.convert import convert
from xpc.compiler.language.extras import ONLY_FSDP1
from xpc.compiler.language.items import Item
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import Wrong
from xpc.compiler.suggest.components import GENERAL, by_its_end
from xpc.compiler.suggest.converted_values import NO, methods_with
from xpc.compiler.suggest.data_names import BEHIND, of_data
from xpc.compiler.suggest.decided import decided
from xpc.compiler.suggest.example import example
from xpc.compiler.suggest.extra_form import passed
from xpc.compiler.suggest.flag_values import chosen as chosen_inside
from xpc.compiler.suggest.flag_values import chosen_head
from xpc.compiler.suggest.legal import answer, left_out
from xpc.compiler.suggest.meaning import NEVER, SAME, Meaning, meaning, nearest_elsewhere
from xpc.compiler.suggest.no_equivalent import NO_EQUIVALENT, advice, own_reason, reason
from xpc.compiler.suggest.registry_names import either
from xpc.compiler.suggest.sentence import held_out, named_by_value, named_outside, sentence
from xpc.compiler.suggest.typed_form import typed, value_of, written
from xpc.grammar.record import evolve
from xpc.grammar.tree import String

MOST = 50
"""Misspelt names of a file that are thought about; the rest of a file of nothing else is only named."""
REFERENCE = "docs/reference.md lists them all"
NAMED_THERE = "the sentence names the model and the data"
FOUR_BITS = re.compile(r"\b(?:nf4|fp4|int4|4-?bit)\b|nf4")
WAYS = {
    "freeze": "freeze",
    "full": "leave it out: every weight is trained unless a spec has `lora`, `qlora`, `oft` or `freeze`",
}
"""What is said of training that is no adapter: `finetuning_type: freeze`."""
HEADER = "it begins the spec: `train MODEL on DATA for 3 epochs`"
READERS = {"accelerate": ", which `strategy fsdp` reads", "deepspeed": ", which `strategy zero2` or `zero3` reads"}


def unknown_name(said: UnknownName, count: int = 0) -> Suggestion:
    """The finding for a name. `count` is how many the file had before."""
    if count >= MOST:
        return Suggestion("XP101", f"`{said.name[:60]}` is not a setting", help=REFERENCE)
    return _outside(said) if said.clause is None else _inside(said, said.clause)


def _outside(said: UnknownName) -> Suggestion:
    name = said.name
    if name == "train":
        return Suggestion("XP101", "`train` is not a setting", help=HEADER)
    if name in schema.SOURCE_SETTINGS and f"data.{name}" not in schema.BY_PATH:
        return _of_a_source(said)
    if (share := held_out(said)) is not None:
        return _suggested(said, f"`{name[:60]}` is not a setting of the language", share, share)
    rows = sorted((row for row in schema.TABLE if row.name == name), key=lambda row: row.path.count("."))
    exact = meaning(name, exact=True)
    special = bool(rows) and all(row.methods for row in rows)
    if rows and not (exact is not None and (special or exact.path.startswith("train"))):
        ways = [written(row, said) for row in rows]
        alone = ways[0] if len(ways) == 1 else None
        return Suggestion(
            "XP102",
            f"`{name[:60]}` belongs inside a clause",
            help="write " + either(ways),
            edit=alone,
            replaces_value=True,
        )
    path = schema.bare_choices().get(name)
    if path is not None:
        return Suggestion(
            "XP104",
            f"`{name[:60]}` is a choice of `{path}`, and takes no value",
            help=f"write `{name}` alone, or `{path.rpartition('.')[2]} = {name}`",
            edit=None if (said.typed or "").strip('"').lower() in NO else name,
            replaces_value=True,
        )
    return _unknown(said, None)


def _inside(said: UnknownName, clause: str) -> Suggestion:
    name = said.name
    message = f"`{name[:60]}` is not a setting of `{clause}`"
    if name == "train":
        return Suggestion("XP102", message, help=HEADER)
    if clause in schema.BY_PATH and schema.BY_PATH[clause].kind is FLAG and _is_beside(name, clause):
        return Suggestion(
            "XP102",
            f"`{name[:60]}` is not a setting of `{clause.rpartition('.')[2]}`",
            help=f"write `{name}` on the next line, or after a comma where the block stands on one line",
        )
    instead = of_data(said) if clause == "data" else None
    if instead is not None:
        return Suggestion("XP101", message, help=instead)
    form = named_outside(said, clause)
    if form is not None:
        return Suggestion("XP102", message, help=form)
    chosen = chosen_head(clause, name, said.node, said.typed)
    if chosen is not None:
        return Suggestion("XP102", message, help=f"write `{clause} {chosen}`")
    if clause == "data" and name in BEHIND:
        value = (said.typed or "...").strip('"')
        return Suggestion(
            "XP102",
            f"{message}: it stands behind the dataset's name",
            help=f"write `SOURCE{BEHIND[name].format(value)}` on the source's line",
        )
    alone = chosen_inside(clause, name) if said.node is None else None
    if alone is not None:
        return _suggested(said, message, alone, alone, inside=True)
    told = advice(f"{clause} {name}", said.typed or "")
    if told is not None:
        return Suggestion("XP101", message, help=told)
    together = meaning(f"{clause} {name}", exact=True)  # `limit` in `save` is `save_limit`, and not that of a source
    if name in schema.SOURCE_SETTINGS and (clause == "data" or f"data.{name}" not in schema.BY_PATH):
        if together is None or not _is_in(together.path, clause):
            return _of_a_source(said)
        return _meant(said, clause, message, together)
    rows = [row for row in schema.TABLE if row.name == name and row.path not in NEVER]
    nothing = _nothing(message, f"{clause} {name}")
    if nothing is not None and (clause == "save" or not rows):  # `format` is that of rows everywhere else
        return nothing
    if said.node is not None and f"{clause}.{name}s" in schema.BY_PATH and f"{clause}.{name}" not in schema.BY_PATH:
        return _meant(said, clause, message, Meaning(f"{clause}.{name}s", own=True))
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
        return _meant(said, clause, message, exact)  # `max_length` is vLLM's, and an argument of the trainers
    if name in schema.CLAUSES:
        row = schema.BY_PATH.get(name)
        form = f"{name} {value_of(row, said)}" if row is not None and said.typed and row.kind is not FLAG else name
        return Suggestion("XP102", message, help=f"write `{form}` on a line of its own, outside of `{clause}`")
    if path is not None:
        home = path.partition(".")[0]
        return Suggestion("XP102", message, help=f"it belongs to `{home}`: write `{name}` outside of `{clause}`")
    if rows[0].path.startswith("train."):
        return Suggestion("XP102", message, help=f"write `for {value_of(rows[0], said)} {name}` in the first line")
    home, forms = rows[0].path.partition(".")[0], [written(row, said) for row in rows]
    if home == clause and len(rows) == 1:  # of a block inside of this one
        return _suggested(said, message, written(rows[0], said), inside=True)
    where = f"it belongs to `{home}`: " if len(rows) == 1 else ""
    intended = (rows[0].path,) if len(rows) == 1 else ()
    return Suggestion("XP102", message, help=f"{where}write {either(forms)} outside of `{clause}`", intended=intended)


def _of_a_source(said: UnknownName) -> Suggestion:
    """The finding for a setting of a source, which stands behind it in the data block."""
    where = " for each source" if said.clause == "data" else " in the `data` block, for each source"
    help = f"write `SOURCE({said.name}={said.typed or '...'})`{where}"
    return Suggestion("XP102", f"`{said.name}` belongs to a source", help=help)


def _is_beside(name: str, flag: str) -> bool:
    """Whether the name is a setting of the clause around a flag: `liger checkpointing` on one line."""
    around = flag.rpartition(".")[0]
    return bool(around) and f"{around}.{name}" in schema.BY_PATH


def _is_in(path: str, clause: str) -> bool:
    return path.rpartition(".")[0] == clause


def _unknown(said: UnknownName, clause: str | None) -> Suggestion:
    name = said.name
    message = f"`{name[:60]}` is not a setting " + (f"of `{clause}`" if clause else "of the language")
    if clause is None and name in stacks.names():
        return Suggestion("XP101", f"`{name}` is a target", help=f"write `target={name}`", edit=f"target={name}")
    lower = name.lower()
    if lower != name and clause is None and lower in _bare():
        return Suggestion("XP101", message, f"did you mean `{lower}`?", f"write `{lower}`", lower)
    if clause is None and (said.typed or "").endswith('.xp"'):  # `import "base.xp"`, `include "base.xp"`
        return Suggestion("XP101", message, help=f"write `extends {said.typed}`, above the sentence and all clauses")
    told = advice(name, said.typed or "")
    if told is not None:
        return Suggestion("XP101", message, help=told)
    meant = meaning(name, clause, valued=said.node is not None)
    exact = meant is not None and meant.likeness >= SAME
    if exact and meant is not None and meant.likeness < 1.0:  # the same by its words alone: `eval_iters`
        found = _nothing(message, name)
        if found is not None:
            return found
    if meant is None or not exact or not meant.own:
        files = name.startswith(("fsdp_", "zero_", "stage3_"))  # keys that only accelerate or DeepSpeed can mean
        own = files and (meant is None or meant.path == "strategy")
        found = _nothing(message, name) or (_passed(said, message) if own or not exact else None)
        found = found or (None if exact else _left_out(message, name))
        if found is not None:
            return found
    tracker, dot, _ = name.partition(".")
    if dot and tracker in schema.BY_PATH["track"].choices:
        return _suggested(said, message, f"track={tracker}")  # `wandb.enabled` of deepspeed.json
    if dot and not exact:
        part = by_its_end(said) or _by_its_last_word(said, clause)
        if part is not None:
            return evolve(_unknown(part, clause), message=message)
    if not exact:
        form = named_by_value(said)
        if form is not None:
            return Suggestion("XP101", message, help=f"write `{form}`: {NAMED_THERE}")
    if meant is None or not exact:
        other = nearest_elsewhere(name)
        if other is not None and (meant is None or other[1] > meant.likeness):
            return _elsewhere(said, message, other[0])
    methods = methods_with(name)
    if methods and (not exact or (meant is not None and meant.path == "method")):  # `dapo` is grpo's, as a loss
        form = f"loss={name}"
        return Suggestion("XP101", message, help=f"write `{form}`, which `method` {', '.join(methods[:3])} reads")
    if meant is None:
        names = [row.name for row in schema.children(clause)] if clause else []
        listed = ", ".join(names[:12])
        help = f"`{clause}` has {listed}" if names else REFERENCE
        return Suggestion("XP101", message, help=help)
    return _meant(said, clause, message, meant)


def _by_its_last_word(said: UnknownName, clause: str | None) -> UnknownName | None:
    """A dotted name by its last part alone, where that is near something: `model.enable_checkpointing`."""
    last = evolve(said, name=said.name.rpartition(".")[2])
    return last if last.name not in GENERAL and _unknown(last, clause).help != REFERENCE else None


def _nothing(message: str, name: str) -> Suggestion | None:
    """The finding for a name that the language has no word for, where the table of such names has it."""
    why = own_reason(name)
    return None if why is None else Suggestion("XP101", message, help=NO_EQUIVALENT + why)


def _left_out(message: str, name: str) -> Suggestion | None:
    """The finding for a name of a target's past, or one that importers leave out."""
    why = reason(name)
    return None if why is None else Suggestion("XP101", message, help=f"leave it out: it has no equivalent ({why})")


def _passed(said: UnknownName, message: str) -> Suggestion | None:
    """The finding for a name that `extra` passes on."""
    found = passed(said.name, said.node, said.typed, said.header)
    if found is None:
        return None
    outside = f" outside of `{said.clause}`" if said.clause else ""
    library = {"trl": "TRL's own", "accelerate": "accelerate's own", "deepspeed": "DeepSpeed's own"}[found.escape]
    reader = f", which `method {found.method}` reads" if found.method else READERS.get(found.escape, "")
    reader = f", which `strategy fsdp1` reads; FSDP2 does it by itself: {said.name} is left out there" if (
        found.name in ONLY_FSDP1) else reader  # fmt: skip
    edit = found.form if found.fits and not outside else None
    return Suggestion("XP101", message, library, f"write `{found.form}`{outside}{reader}", edit, True)


def _elsewhere(said: UnknownName, message: str, near: str) -> Suggestion:
    """The finding for a name that is spelt like one that `extra` passes on, or like one with no equivalent."""
    found = _passed(evolve(said, name=near), message) or _left_out(message, near)
    assert found is not None
    return evolve(found, text=f"did you mean `{near}`?")


def _bare() -> list[str]:
    """What may stand alone in the body or after `with`."""
    return [*(one for one in schema.CLAUSES if one != "train"), *schema.outer_names(), *schema.bare_choices()]


def _meant(said: UnknownName, clause: str | None, message: str, meant: Meaning) -> Suggestion:
    return evolve(_said_of(said, clause, message, meant), intended=(meant.path,))


def _said_of(said: UnknownName, clause: str | None, message: str, meant: Meaning) -> Suggestion:
    row = schema.BY_PATH.get(meant.path)
    if meant.path == "train":
        return _suggested(said, message, sentence(said, meant, None))
    if row is not None and row.kind is FLAG and "/" in (said.typed or "") and f"{row.path}.name" in schema.BY_PATH:
        meant = Meaning(f"{row.path}.name", own=True)  # `push_to_hub = "me/model"`
        row = schema.BY_PATH[meant.path]
    if row is None and meant.path in schema.CLAUSES:
        return _suggested(said, message, meant.path, meant.path, replaces_value=False)
    text = (said.typed or "").strip('"').lower()
    outer = schema.BY_PATH.get(meant.path.rpartition(".")[0])
    if text in ("true", "false") and meant.path == "save.hub.name" and outer is not None:
        meant, row = Meaning(outer.path, text, own=True), outer  # `push = true` is `hub`, and no name of a repository
    if row is not None and row.path == "lora.bits" and FOUR_BITS.search(text):
        meant = Meaning("qlora", "true")  # `quantize = bnb.nf4`
        row = schema.BY_PATH["qlora"]
    if row is not None and row.kind is FLAG and f"{row.path}.{text}" in schema.BY_PATH:
        meant = Meaning(f"{row.path}.{text}", "true", own=meant.own)  # `recompute_granularity = selective`
        row = schema.BY_PATH[meant.path]
    if row is not None and row.path == "method.loss":
        methods = methods_with(text)
        if methods and "sft" not in methods:
            form = f"write `loss={text}`, which `method` {', '.join(methods[:3])} reads"
            return Suggestion("XP101", message, f"did you mean `loss={text}`?", form)
    if row is None or row.path.startswith("train."):
        return _suggested(said, message, sentence(said, meant, row))
    if row.path in schema.ADAPTERS and isinstance(said.node, String) and "/" in said.node.value:
        meant, row = Meaning("lora.from", own=True), schema.BY_PATH["lora.from"]  # `adapter = "out/first"`
    if row.path in schema.ADAPTERS and said.node is not None and text in WAYS:
        way = WAYS[text]
        return Suggestion("XP101", message, help=way) if " " in way else _suggested(said, message, way, way)
    value = decided(row, said, meant)
    if row.path == "method.completion_only" and (value or "true") == "true" and said.name not in (row.name, *row.args):
        help = "write `assistant_only` for rows of conversations, or `completion_only` for a prompt and its completion"
        return Suggestion("XP101", message, help=help)  # which of them the rows are is read later
    if value is None and said.node is not None and row.kind is not BLOCK and not row.pending:
        named = named_by_value(said)
        if named is not None:
            return Suggestion("XP101", message, help=f"write `{named}`: {NAMED_THERE}")
        other = (
            text
            if text in schema.ADAPTERS or schema.bare_choices().get(text) not in (None, row.path, said.name)
            else ""
        )
        if other:  # the value is a choice of its own: `train_type = lora`
            return _suggested(said, message, other, other)
        return _decides(row, said, message)
    if "/" in text and row.kind.name == "name" and (named := named_by_value(said)) is not None:
        return Suggestion(
            "XP101", message, help=f"write `{named}`: {NAMED_THERE}"
        )  # `prompt_data org/name` is no column
    if row.path in schema.ADAPTERS and value == "true" and (said.typed or "").strip('"') in schema.ADAPTERS:
        return _suggested(said, message, (said.typed or "").strip('"'), (said.typed or "").strip('"'))
    if meant.path == clause:  # the head, which stands on the clause's line
        return _suggested(said, message, f"{row.name} {value or example(row)}", inside=True)
    if clause is None and row.methods and "sft" not in row.methods and not row.path.startswith("method.rewards"):
        form, readers = typed(row, value), ", ".join(row.methods[:3])
        return Suggestion(
            "XP101", message, f"did you mean `{form}`?", f"write `{form}`, which `method` {readers} reads"
        )
    kept = value is None or value == said.typed
    if clause is not None and _is_in(meant.path, clause):
        return _suggested(said, message, row.name if kept else f"{row.name} = {value}", row.name, True, not kept)
    if clause is None and not row.inner and not meant.value:
        alone = row.head or row.kind in (FLAG, BLOCK) or bool(row.alone)
        if alone if said.node is None else (kept and row.kind is not FLAG):
            return _suggested(said, message, row.name, row.name, replaces_value=False)
    alone = bool(value) and value == meant.value and row.bare and value in row.choices
    form = value if alone and value else typed(row, value)
    inside = clause is not None and row.path.startswith(f"{clause}.")  # of a block inside of this one
    invented = said.node is None and row.kind is not FLAG and not meant.value and meant.likeness < SAME
    return _suggested(said, message, form, None if row.pending or invented else form, inside)


def _suggested(
    said: UnknownName,
    message: str,
    form: str,
    edit: str | None = None,
    inside: bool = False,
    replaces_value: bool = True,
) -> Suggestion:
    """The finding that suggests a form, in the clause where the name stands, or outside of it without an edit."""
    outside = f" outside of `{said.clause}`" if said.clause and not inside else ""
    edit = None if edit is None or outside else form
    return Suggestion("XP101", message, f"did you mean `{form}`?", f"write `{form}`{outside}", edit, replaces_value)


def _decides(row: Setting, said: UnknownName, message: str) -> Suggestion:
    """The finding for a name that means a setting, with a value that it cannot have: what it takes, and no edit."""
    from xpc.compiler.suggest.converted_values import plain, told

    assert said.node is not None
    unset = left_out(row, plain(said.node, said.typed))
    if unset:
        return Suggestion("XP101", message, f"did you mean `{row.name}`?", unset)
    found = convert(row, Item(row.path, said.node, said.label)) if row.kind.name == "tokens" else None
    help = (answer(found).help or "") if isinstance(found, Wrong) else ""
    what = help if help.startswith("write ") else told(row, said.name, plain(said.node, said.typed))
    such = (
        ""
        if row.choices or ("`" in what and what != row.kind.phrase) or what.startswith("write ")
        else f", such as `{typed(row, None)}`"
    )
    return Suggestion("XP101", message, f"did you mean `{row.name}`?", f"`{row.path}` decides it: {what}{such}")
