"""Suggest a setting for a value that is written where a block belongs: `vllm = colocate` becomes `vllm(mode=colocate)`.
Imported only for a wrong spec.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from xpc.compiler.language import schema
from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.suggest.converted_values import NO, NUMBER, SWITCHES, YES
from xpc.compiler.suggest.known_names import known_choice
from xpc.compiler.suggest.likeness import parts
from xpc.compiler.suggest.lines.notations import is_legal, notation
from xpc.compiler.suggest.meaning import meaning
from xpc.compiler.suggest.similar_choices import choice
from xpc.compiler.suggest.tables import mapped, words_of
from xpc.grammar.diagnostic import Label
from xpc.grammar.nearest import letters
from xpc.grammar.tree import Call, Number, Value

NAMED = ("name", "type", "kind")
"""Keys under which other tools write a clause's choice: `optimizer { name = adamw }`."""
KINDS = (*NAMED, "variant", "adapter", "peft_type", "adapter_type")
AROUND = re.compile(r".*\.|^get_|_schedule(?:_with_warmup)?$|_?logger$|callback$", re.I)
"""A pattern for the text around a choice in the name of a function or class, such as `get_` and `_schedule_with_warmup`
in `get_cosine_schedule_with_warmup`.
"""
BITS_OR_RANK = {
    "4": "write `qlora` for a base of 4 bits, or `qlora(rank=4)`",
    "8": "write `lora(bits=8)` for a base of 8 bits, or `qlora(rank=8)`",
}
BITS = re.compile(r"\b(?:int|nf|fp)([48])\b|\b([48])-?bits?\b")


def flag_setting(row: schema.Setting, node: Value, typed: str) -> str | None:
    """Rewrite a value of a flag as a setting in the flag's block: `lora = 16` becomes `lora(rank=16)`. None if no
    setting of the block accepts the value.
    """
    if isinstance(node, Number) and row.path in schema.ADAPTERS and NUMBER.fullmatch(typed):
        bits = row.path == "qlora" and node.value in (4, 8)  # `qlora = 4` may mean the bits or the rank
        return f"{row.name}(rank={typed})" if isinstance(node.value, int) and node.value > 1 and not bits else None
    if row.path in schema.ADAPTERS and (found := BITS.search(typed)) is not None:
        return "qlora" if "4" in found[0] else "lora(bits=8)"
    if isinstance(node, Number):  # `sync_reference = 64`, `vllm = 0.5`
        named = [(one, typed if is_legal(one, typed) else notation(one, typed)) for one in schema.children(row.path)]
    else:
        named = [(one, known_choice(one, typed)) for one in schema.children(row.path)]
    inner = [f"{row.name}({one.name}={known})" for one, known in named if known and typed not in (*YES, *NO, "default")]
    return inner[0] if len(inner) == 1 and not isinstance(node, Call) else None


def setting_of_choice(rows: Sequence[schema.Setting], name: str) -> str | None:
    """The setting for a choice that is written without the setting's name: `vllm { colocate }` becomes
    `mode = colocate`. None if the choice belongs to none of the settings.
    """
    inner = [(one, name) for one in rows if name in one.choices]
    modules = mapped("blocks").get(name.lower())  # `attention_only` and `mlp` in `lora`
    inner += [(one, modules) for one in rows if modules is not None and one.kind.name == "targets"]
    if not (inner or {name.lower()} & {*schema.CLAUSES, *(one.name for one in schema.TABLE)}) and len(name) > 4:
        inner = [(one, same) for one in rows if one.choices and (same := known_choice(one, name)) is not None]
    return f"{inner[0][0].name} = {inner[0][1]}" if len(inner) == 1 else None


def head_choice(clause: str, name: str, node: Value | None, typed: str | None) -> str | None:
    """The choice of a clause, if the user wrote it as a setting in the clause's block: `optimizer { name = adamw }`
    means `optimizer adamw`. None if the setting states no choice of the clause.
    """
    head = schema.BY_PATH.get(clause)
    if head is None or not head.choices or f"{clause}.{name}" in schema.BY_PATH:
        return None
    text = (typed or "").strip('"').lower()
    if name in words_of("class_keys"):
        return choice(head, AROUND.sub("", AROUND.sub("", text)))
    if name in head.choices:
        return None if text in (*NO, "auto") or (node is not None and f"{clause}.{name}s" in schema.BY_PATH) else name
    known = meaning(f"{clause} {name}", exact=True)  # `weights = fp32` in `precision` is `dtype`
    other = ({*parts(name)} & {*schema.CLAUSES}) - {clause} or (known is not None and not known.path.startswith(clause))
    if text in head.choices and not other and not any(row.name == name for row in schema.TABLE):
        # the value is right and its name is wrong, as in `scheduler = slurm` instead of `launch slurm`
        return text
    if letters(name + text) in map(letters, head.choices):
        # name and value together are a choice: `zero = 3` means `zero3`
        return next(one for one in head.choices if letters(one) == letters(name + text))
    return choice(head, text) if name in NAMED or name == "dtype" else None


def offloaded(at: Label, near: str | None) -> str | None:
    """The choice of `offload` to suggest for `offload = true`. Under ZeRO 1 and 2, each GPU keeps all weights, so only
    the optimizer's states can be offloaded. For other strategies, and for other values than `true`, the result is
    `near`.
    """
    before = at.source.text[max(0, at.span.start - 200) : at.span.start]
    return "optimizer" if near == "cpu" and at.typed in SWITCHES and re.search(r"\bzero[12]\b[^}]*$", before) else near


def choice_of_class(name: str) -> tuple[str, str] | None:
    """The setting and its value for a Python class or function that is a choice of a clause: `optimizer` and `lion` for
    `bitsandbytes.optim.Lion`, `strategy` and `fsdp` for `fsdp`. None for any other name.
    """
    rows = sorted((row for row in schema.TABLE if row.head and row.choices), key=lambda row: name not in row.choices)
    found = ((row.path, known_choice(row, AROUND.sub("", name))) for row in rows)
    return next(((path, one) for path, one in found if one is not None), None)


def reward(name: str) -> str | None:
    """The reward function of Open-R1 with a name, or with another spelling of it. None if there is none."""
    return name if name in REWARDS else known_choice(schema.BY_PATH["method.rewards"], name)
