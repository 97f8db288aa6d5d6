"""Write a generated spec as text: blocks, calls and lines, in the order of the language's examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from generator import Draft

HEADED = {"strategy": "zero2", "precision": "fp32", "optimizer": "adamw", "schedule": "cosine", "track": "wandb",
          "launch": "local", "method": "sft"}  # fmt: skip
"""Maps each clause to the value that is written if a spec has settings inside the clause but no value of it: `strategy
zero2 { ... }`.
"""


def text(draft: Draft) -> str:
    """The complete text of a generated spec."""
    heads, inside, inline = dict(draft.heads), draft.inside, []
    if draft.chance(0.12) and not inside.get("strategy"):
        inline.append(heads.pop("strategy"))
        inline += [] if inside.get("precision") else [heads.pop("precision")]
    out = ["xpc 1", draft.header + (f" with {' '.join(inline)}" if inline else "")]
    for clause in dict.fromkeys(("hardware", "nodes", "target", *heads, *inside)):
        head, items = heads.get(clause, ""), inside.get(clause, [])
        if clause == "target":
            head = draft.stack.name
        if not head and not items and clause not in heads:
            continue
        if clause == "save" and not head:
            head = '"out/run"'
        if clause == "data" and clause in draft.blocks:
            out.append(_block("data mix", items))
            continue
        out.append(_clause(draft, clause, head or (HEADED.get(clause, "") if items else ""), items))
    if draft.chance(0.9) and "save" not in heads and "save" not in inside:
        out.append('save "out/run"')
    return "\n".join(out) + "\n"


def _clause(draft: Draft, clause: str, head: str, items: Sequence[str]) -> str:
    opening = f"{clause} {head}".strip()
    if not items:
        return opening
    form = draft.draw.random()
    if clause in draft.blocks or form < 0.6:
        return _block(opening, items)
    if form < 0.8 and not head.startswith('"') and " x " not in head:
        return f"{opening}({', '.join(items)})"
    return f"{opening} {' '.join(items)}"


def _block(opening: str, items: Sequence[str]) -> str:
    return "\n".join([f"{opening} {{", *(f"  {_spaced(one)}" for one in items), "}"])


def _spaced(item: str) -> str:
    name, equals, value = item.partition("=")
    return f"{name} = {value}" if equals and "(" not in name and " = " not in item else item
