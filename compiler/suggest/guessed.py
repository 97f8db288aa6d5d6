"""Suggest the setting that an unknown name probably means, together with its value in xpc's notation."""

from __future__ import annotations

import re

from xpc.compiler import registry
from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.language.convert import convert
from xpc.compiler.language.items import Item
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.language.schema import Setting
from xpc.compiler.language.values import InvalidValue
from xpc.compiler.suggest.converted_values import methods_with
from xpc.compiler.suggest.legal import ALREADY, AUTO, answer, example, leave_out, unset_advice
from xpc.compiler.suggest.meaning import SAME, Meaning, choice
from xpc.compiler.suggest.sentence import named_by_value, sentence
from xpc.compiler.suggest.typed_form import clause_line, decided_value, typed
from xpc.grammar.record import evolve
from xpc.grammar.tree import Call, Number, Ref, String

FOUR_BITS = re.compile(r"\b(?:nf4|fp4|int4|4-?bit)\b|nf4")
NAMED_THERE = "the first line names the model and the data"


def of_guess(unknown: UnknownName, clause: str | None, message: str, guess: Meaning) -> Suggestion:
    """The suggestion for a name that probably means the setting `guess`. Rules then treat this setting as written."""
    return evolve(_for_guess(unknown, clause, message, guess), intended=(guess.path,))


def _for_guess(unknown: UnknownName, clause: str | None, message: str, guess: Meaning) -> Suggestion:
    row = schema.BY_PATH.get(guess.path)
    if guess.path == "train":
        return suggested(unknown, message, sentence(unknown, guess, None))
    if row is None and guess.path.startswith("data."):
        where = " for each source" if clause == "data" else " in the `data` block, for each source"
        form = sentence(unknown, guess, None)
        return Suggestion("XP101", message, f"did you mean `{form}`?", f"write `{form}`{where}")
    if row is not None and row.kind is FLAG and "/" in (unknown.typed or "") and f"{row.path}.name" in schema.BY_PATH:
        # the user wrote a repository as the value of a flag, as in `push_to_hub = "me/model"`
        guess = Meaning(f"{row.path}.name", own=True)
        row = schema.BY_PATH[guess.path]
    if row is None and guess.path in schema.CLAUSES:
        form = clause_line(guess.path, unknown) if clause and unknown.name == guess.path else guess.path
        return suggested(unknown, message, form, guess.path, replaces_value=False)
    text = (unknown.typed or "").strip('"').lower()
    outer = schema.BY_PATH.get(guess.path.rpartition(".")[0])
    if text in ("true", "false") and guess.path == "save.hub.name" and outer is not None:
        # `push = true` means the setting `hub`; it is not a repository called "true"
        guess, row = Meaning(outer.path, text, own=True), outer
    if row is not None and row.path == "lora.bits" and FOUR_BITS.search(text):
        guess = Meaning("qlora", "true")  # such as `quantize = bnb.nf4`
        row = schema.BY_PATH["qlora"]
    if row is not None and row.path == "method.loss":
        methods = methods_with(text)
        if methods and "sft" not in methods:
            form = f"write `loss={text}`, which `method` {', '.join(methods[:3])} reads"
            return Suggestion("XP101", message, f"did you mean `loss={text}`?", form)
    if row is None or row.path.startswith("train."):
        return suggested(unknown, message, sentence(unknown, guess, row))
    if row.path in schema.ADAPTERS and isinstance(unknown.node, String) and "/" in unknown.node.value:
        guess, row = Meaning("lora.from", own=True), schema.BY_PATH["lora.from"]  # such as `adapter = "out/first"`
    node = unknown.node
    if row.path == "eval.split" and isinstance(node, Number):
        guess, row = Meaning("data.holdout", own=True), schema.BY_PATH["data.holdout"]  # `dev_split = 0.05` is a share
    if row.path == "data.context" and isinstance(node, Number):
        guess, row = Meaning("batch.seq", own=True), schema.BY_PATH["batch.seq"]  # `ctx = 4096` is no column
    if row.path == "hardware" and (node is None or isinstance(node, Number)) and guess.value != "cpu":
        count = node.value if isinstance(node, Number) and isinstance(node.value, int) and node.value > 0 else "N"
        form = f"hardware{'=' if unknown.header else ' '}{count} x GPU"
        help = f"write `{form}`, with the name of your GPU: `xpc list gpus` prints the names"
        return Suggestion("XP101", message, help=help)
    if isinstance(node, Call) and row.head and row.choices and clause is None:  # such as `optim adam(lr=1e-5)`
        called = node.name.text if node.name.text in row.choices else choice(row, node.name.text)
        form = f"{row.name} {called or row.choices[0]}{(unknown.typed or '')[len(node.name.text) :]}"
        return suggested(unknown, message, form, None if called is None else form)
    if isinstance(node, Ref) and row.kind is FLAG and f"{row.path}.{node.name}" in schema.BY_PATH:
        # such as `hubb(private)`
        return suggested(unknown, message, row.name, row.name, bool(clause), replaces_value=False)
    value = decided_value(row, unknown, guess)
    if row.path == "optimizer.betas" and value and (both := both_betas(unknown)) is not None:
        if "2" in unknown.name:
            help = f"leave `{unknown.name}` out: `betas = {both}` sets both"
            return Suggestion("XP101", message, "did you mean `betas`?", help)
        value = both
    if (row.path, value) in ALREADY and unknown.node is not None:
        return Suggestion("XP101", message, help=ALREADY[row.path, value or ""])
    if (
        row.path == "method.completion_only"
        and (value or "true") == "true"
        and unknown.name not in (row.name, *row.args)
    ):
        help = "write `assistant_only` for rows of conversations, or `completion_only` for a prompt and its completion"
        return Suggestion("XP101", message, help=help)  # the format of the rows is unknown at this point
    if value is None and unknown.node is not None and row.kind is not BLOCK:
        named = named_by_value(unknown)
        if named is not None:
            return Suggestion("XP101", message, help=f"write `{named}`: {NAMED_THERE}")
        return wrong_value(row, unknown, message)
    if "/" in text and row.kind.name == "name" and (named := named_by_value(unknown)) is not None:
        return Suggestion(
            "XP101", message, help=f"write `{named}`: {NAMED_THERE}"
        )  # `prompt_data org/name` is not a column
    if row.path in schema.ADAPTERS and value == "true" and (unknown.typed or "").strip('"') in schema.ADAPTERS:
        return suggested(unknown, message, (unknown.typed or "").strip('"'), (unknown.typed or "").strip('"'))
    if guess.path == clause:  # the value is on the clause's line, outside the block
        return suggested(unknown, message, f"{row.name} {value or example(row)}", inside=True)
    if clause is None and row.methods and "sft" not in row.methods and not row.path.startswith("method.rewards"):
        form, readers = typed(row, value), ", ".join(row.methods[:3])
        return Suggestion(
            "XP101", message, f"did you mean `{form}`?", f"write `{form}`, which `method` {readers} reads"
        )
    kept = value is None or value == unknown.typed
    if clause is not None and is_in(guess.path, clause):
        return suggested(unknown, message, row.name if kept else f"{row.name} = {value}", row.name, True, not kept)
    if clause is None and not row.inner and not guess.value:
        alone = row.head or row.kind in (FLAG, BLOCK) or bool(row.alone)
        if alone if unknown.node is None else (kept and row.kind is not FLAG):
            return suggested(unknown, message, row.name, row.name, replaces_value=False)
    alone = bool(value) and value == guess.value and row.bare and value in row.choices
    form = value if alone and value else typed(row, value)
    inside = clause is not None and row.path.startswith(f"{clause}.")  # the setting belongs to a nested block
    invented = unknown.node is None and row.kind is not FLAG and not guess.value and guess.likeness < SAME
    return suggested(unknown, message, form, None if invented else form, inside)


def both_betas(unknown: UnknownName) -> str | None:
    """The list of both betas if a spec also states the other one: `beta1 = 0.9` next to `beta2 = 0.95`. Otherwise
    None.
    """
    text, first = unknown.label.source.text, "1" in unknown.name
    other = re.search(rf"\b(?:adam\w?_?)?b(?:eta)?s?_?{2 if first else 1}\s*=\s*(0?\.\d+)", text)
    if other is None or unknown.typed is None:
        return None
    return f"[{unknown.typed}, {other[1]}]" if first else f"[{other[1]}, {unknown.typed}]"


def suggested(
    unknown: UnknownName,
    message: str,
    form: str,
    edit: str | None = None,
    inside: bool = False,
    replaces_value: bool = True,
) -> Suggestion:
    """Suggest a text (`form`) for an unknown name, with an edit if the text can be written at the same place."""
    outside = f" outside of `{unknown.clause}`" if unknown.clause and not inside else ""
    edit = None if edit is None or outside else form
    return Suggestion("XP101", message, f"did you mean `{form}`?", f"write `{form}`{outside}", edit, replaces_value)


def wrong_value(row: Setting, unknown: UnknownName, message: str) -> Suggestion:
    """The finding for a known setting with an impossible value: it says which values are legal, and has no edit."""
    from xpc.compiler.suggest.converted_values import expected, plain

    assert unknown.node is not None
    text = plain(unknown.node, unknown.typed)
    if row.path == "hardware":
        cards = re.fullmatch(r"(?:gpu:)?(?:(?P<name>[A-Za-z][\w.-]*)[:=])?(?P<count>\d+)", text)
        named = registry.find_gpu(cards["name"]) if cards is not None and cards["name"] else None
        form = f"{cards['count'] if cards is not None else 'N'} x {'GPU' if named is None else named.name}"
        which = "" if named is not None else ", with the name of your GPU: `xpc list gpus` prints the names"
        return Suggestion("XP101", message, help=f"write `hardware {form}`{which}")
    unset = unset_advice(row, text) or (leave_out(row) if text == "auto" and row.path not in AUTO else "")
    if unset:
        return Suggestion("XP101", message, f"did you mean `{row.name}`?", unset)
    found = convert(row, Item(row.path, unknown.node, unknown.label)) if row.kind.name == "tokens" else None
    help = (answer(found).help or "") if isinstance(found, InvalidValue) else ""
    what = help if help.startswith("write ") else expected(row, unknown.name, plain(unknown.node, unknown.typed))
    such = (
        ""
        if row.choices or ("`" in what and what != row.kind.phrase) or what.startswith("write ")
        else f", such as `{typed(row, None)}`"
    )
    intended = row.path if row.name == unknown.name else row.name
    return Suggestion("XP101", message, f"did you mean `{intended}`?", f"`{row.path}` decides it: {what}{such}")


def is_in(path: str, clause: str) -> bool:
    """Whether a setting belongs to a clause directly, and not to a block inside it."""
    return path.rpartition(".")[0] == clause
