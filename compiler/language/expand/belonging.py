"""Decide whether an item after `with` belongs to the clause before it, or needs a value after it."""

from __future__ import annotations

from xpc.compiler.language import schema
from xpc.compiler.language.expand.clauses import Clauses, Operand
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.grammar.tree import Call, List, Ref, Setting


def belongs_to(clauses: Clauses, name: str, node: Operand) -> bool:
    """Whether an item after `with` belongs to the name before it: in `with track wandb name="x"`, the setting
    `name="x"` belongs to `track`. In `eval every=100 micro=8`, the item `micro=8` could be a setting of `eval` or of
    the batch, so it is reported as ambiguous.
    """
    if not isinstance(node, Setting | Ref | Call):
        return False
    inner = node.name if isinstance(node, Ref) else node.name.text
    if name == "extra":
        return isinstance(node, Setting) and inner not in clauses.outer
    if name == "sweep":
        return isinstance(node, Setting) and isinstance(node.value, List)
    unknown = inner not in clauses.outer and inner not in schema.CLAUSES and f"lora.{inner}" not in schema.BY_PATH
    if name in schema.ADAPTERS and isinstance(node, Setting) and unknown:
        return clauses.advisor().is_known(f"lora_{inner}")  # a spec may call `rank` by PEFT's name, as in `lora r=16`
    choice = clauses.choices.get(name)
    if choice and isinstance(node, Ref) and clauses.outer.get(inner, "train") in schema.BY_PATH:
        return False  # a setting such as `warmup` in `cosine warmup 3%` is also legal without the clause
    home = schema.BY_PATH[choice].clause if choice else clauses.outer.get(name, name)
    path = f"{'lora' if home in schema.ADAPTERS else home}.{inner}"
    other = inner if inner in schema.CLAUSES and inner in schema.BY_PATH else clauses.outer.get(inner, path)
    if path not in schema.BY_PATH or (not isinstance(node, Setting) and inner in (*schema.CLAUSES, *clauses.choices)):
        return False
    if other != path and name in ("data", "eval"):
        typed = clauses.typed(node.span)
        message = f"`{inner}` after `{name}` may mean `{path}` or `{other}`"
        clauses.problem("XP104", message, node.span, help=f"write `{name}({typed})`, or `{typed}` before `{name}`")
        return True
    return other == path


def needs_value(clauses: Clauses, name: str) -> bool:
    """Whether a name after `with` is a setting that needs a value, such as `micro` or `lr`."""
    row = schema.BY_PATH.get(clauses.outer.get(name, ""))
    return row is not None and not row.head and row.kind not in (FLAG, BLOCK) and name not in clauses.choices
