"""Find settings in a clause that are written without their `=`: `save "out" every 100 steps`.

This module is imported only if a value without `=` follows the name of a setting.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from xpc.compiler.language import schema
from xpc.compiler.language.kinds import FLAG
from xpc.grammar import units
from xpc.grammar.record import record
from xpc.grammar.source import Span
from xpc.grammar.tree import Clause, File, Number, Ref, Setting, String, Value

Operand = Setting | Clause | Value


@record
class MissingEquals:
    """A setting that is written without `=`, such as `every 100`: its location, and the correct text `every=100`."""

    span: Span
    form: str


def unmarked_values(clause: str, body: Sequence[Operand], text: str) -> tuple[list[Operand], list[MissingEquals]]:
    """Divide the items of a clause into two groups, and return both: the correct items, and the settings without
    `=`.
    """
    kept: list[Operand] = []
    found: list[MissingEquals] = []
    at = 0
    while at < len(body):
        node, value = body[at], body[at + 1] if at + 1 < len(body) else None
        at += 1
        row = schema.BY_PATH.get(f"{clause}.{node.name}") if isinstance(node, Ref) else None
        if not isinstance(node, Ref) or row is None or not can_be_value(row, value):
            kept.append(node)
            continue
        assert isinstance(value, Value)
        end, typed = value.span.end, text[value.span.start : value.span.end]
        unit = body[at + 1] if at + 1 < len(body) else None
        at += 1
        if isinstance(unit, Ref) and units.is_unit(unit.name):
            end, typed, at = unit.span.end, units.as_value(row.name, typed, unit.name) or typed, at + 1
        found.append(MissingEquals(Span(node.span.start, end), f"{row.name}={typed}"))
    return kept, found


def can_be_value(row: schema.Setting, value: Operand | None) -> bool:
    """Whether the item after a setting's name can only be the setting's value, as in `lr 1e-5`, `dtype bf16`,
    `partition gpu` and `hub me/model`.
    """
    if row.path == "save.hub":
        return isinstance(value, String) or (isinstance(value, Ref) and "/" in value.name)
    if row.kind is FLAG:
        return False
    if row.kind.name == "name" and isinstance(value, Ref):
        return f"{row.clause}.{value.name}" not in schema.BY_PATH
    words = TIMES if row.kind.name == "every" else row.choices
    return isinstance(value, Number | String) or (isinstance(value, Ref) and value.name in words)


@record
class ExtraWord:
    """An unnecessary word after a number or a flag, such as `steps` in `every=10 steps`. The fields are the parts of a
    finding about this word: location, message, help and correct text.
    """

    span: Span
    message: str
    help: str
    form: str | None


TIMES = ("epoch", "never")
OFF = ("off", "no", "none", "false", "disabled")


def followed_by(last: Operand, node: Ref, text: str) -> ExtraWord | None:
    """Return the parts of a finding if the word `node.name` after the item `last` is unnecessary: a unit (`every=10
    steps`) or a switch (`packing off`). None for any other word.
    """
    if isinstance(last, Setting) and units.is_unit(node.name):
        count = text[last.value.span.start : last.value.span.end]
        value = units.as_value(last.name.text, count, node.name)
        span = Span(last.value.span.start, node.span.end)
        return ExtraWord(span, units.message(count, node.name), units.remedy(value), value)
    if not isinstance(last, Ref) or not last.is_name or not _is_switch(last.name, node.name):
        return None
    form = f"{last.name}=false" if node.name in OFF else last.name
    message = f"`{last.name}` is a switch: alone it is on, and `{last.name}=false` is off"
    return ExtraWord(Span(last.span.start, node.span.end), message, f"write `{form}`", form)


def _is_switch(name: str, word: str) -> bool:
    """Whether a switch such as `off` after the flag `name` is a mistake. True for `packing`. False for `lora`, because
    `lora false` is legal.
    """
    row = schema.BY_PATH.get(name)
    if row is not None or name in schema.CLAUSES or name in schema.ADAPTERS:
        return (name in schema.ADAPTERS or (row is not None and row.kind is FLAG)) and word not in ("true", "false")
    return any(row.kind is FLAG and row.name == name for row in schema.TABLE)


WHEN = {"epochs": "epoch", "steps": "100"} | dict.fromkeys(("true", "yes", "on", "epoch"), "epoch")
WHEN |= dict.fromkeys(("false", "no", "off", "none", "never"), "never")
SPLITS = ("test", "validation", "valid", "val", "dev")
"""Usual names of the splits on which a model is evaluated: `eval test` is `eval(split=test)`."""
SHARES = ("every", "share", "steps_or_share", "real_or_share", "rows_or_share")
BITS = ("8bit", "4bit", "8bits", "4bits")
NUMBERED = (
    (("lora", "qlora", "vera", "loha", "miss"), r"[1-9]\d*", "rank"),
    (("save", "track"), r"[1-9]\d*%?", "every"),
    (("eval",), r"[1-9]\d*", "every"),
    (("batch",), r"[1-9]\d*", "gbs"),
    (("optimizer",), r"\d(?:\.\d+)?e-0?[3-9]|0?\.0\d+", "lr"),
    (("schedule",), r"[1-9]\d+|0?\.0\d+|[1-9]%", "warmup"),
    (("method",), r"0?\.\d+", "beta"),
    (("launch",), r"[1-9]\d*[mh]", "time"),
)
"""Clauses, a pattern, and the setting that a single number after the clause's name stands for: `lora 16` means `rank =
16`, and `optimizer adamw(1e-5)` means `lr = 1e-5`.
"""


def implied_setting(clause: str, typed: str) -> str:
    """The setting that a single word or number after a clause's name sets: `every = epoch` for `eval epoch`, and `rank
    = 16` for `lora 16`. Empty if it sets nothing.
    """
    if clause in ("lora", "qlora") and typed.lower().replace("-", "") in BITS:
        return f"bits = {typed[0]}"
    switch = clause in ("lora", "qlora") and typed == "1"  # `lora 1` turns LoRA on
    for clauses, pattern, name in () if switch else NUMBERED:
        if clause in clauses and re.fullmatch(pattern, typed):
            return f"{name} = {typed}"
    return f"every = {WHEN[typed]}" if clause in ("eval", "save") and typed in WHEN else ""


def block_names(file: File, head: str = "") -> set[str]:
    """The first words after the heads of a spec's clauses, such as `held` for `data held { ... }`. With `head`, only of
    the clauses with this head.
    """
    clauses = [one for one in file.statements if isinstance(one, Clause)]
    clauses = [one for one in clauses if not head or (isinstance(one.head, Ref) and one.head.name == head)]
    return {one.operands[0].name for one in clauses if one.operands and isinstance(one.operands[0], Ref)}


def stray_value(
    clause: str, typed: str, rows: bool, written: Collection[str], blocks: Collection[str]
) -> tuple[str, str, str | None]:
    """The finding for a value in a clause that lacks the name of its setting: the message, the help and the edit. For
    `eval 5%`, the help shows each setting that may have a share and is not `written` above. `rows` is true if the value
    may be rows of `eval`. `blocks` has the names of the spec's `data` blocks.
    """
    form = implied_setting(clause, typed) or (f"{'split' if typed in SPLITS else 'data'} = {typed}" if rows else "")
    form = "" if f"{clause}.{form.partition(' ')[0]}" in written else form
    share = f"{float(typed) * 100:g}%" if not form and re.fullmatch(r"0?\.\d+", typed) else typed
    if form == f"data = {typed}" and re.fullmatch(r"[a-z]\w*", typed) and typed not in blocks:
        help = f"write `eval {{ {form} }}` for the loss on its rows, or `eval {{ tasks = [{typed}] }}` for a benchmark"
        return "a value in `eval` needs the name of its setting", help, None
    if rows and form:
        edit = form if len(form) < 60 else None
        return "a value in `eval` needs the name of its setting", f"write `eval {{ {form} }}`", edit
    shares = [
        f"{row.name}={share}" for row in schema.children(clause) if row.kind.name in SHARES and row.path not in written
    ]
    shares += [f"data(holdout={share})` outside of `eval"] if clause == "eval" and "data.holdout" not in written else []
    both = re.fullmatch(r"(\d+)[/:](\d+)", typed) if clause in ("lora", "qlora") else None
    if both is not None:
        return f"`{typed}` is a value without a setting", f"write `{clause}(rank={both[1]}, alpha={both[2]})`", None
    if clause == "strategy" and re.match('"(?:full_shard|shard_grad_op|auto_wrap)', typed):
        form = "strategy fsdp(offload=cpu)" if "offload" in typed else "strategy fsdp"
        return f"{typed} is a value without a setting", f"write `{form}`, without {typed}", None
    if clause == "model":
        named = typed[1:-1] if re.fullmatch(r'"[\w.-]+/[\w.-]+"', typed) else typed
        help = f"write `train {named} on DATA`: the first line names the model"
        return f"`{typed}` is a value without a setting", help, None
    ways = (shares if share.endswith("%") and not form else []) or [form or "name=value"]
    return f"`{typed}` is a value without a setting", "write " + " or ".join(f"`{one}`" for one in ways), form or None
