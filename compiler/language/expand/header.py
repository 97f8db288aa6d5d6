"""Read the settings of the header, after `with`: each name is followed by its value and its settings."""

from __future__ import annotations

from xpc.compiler.language import schema
from xpc.compiler.language.expand.clauses import Clauses, Operand
from xpc.compiler.language.kinds import BLOCK, CHOICES, FLAG
from xpc.grammar.source import Span
from xpc.grammar.tree import Call, Clause, List, Name, Number, Ref, Setting, String, Value


def read_options(clauses: Clauses, options: tuple[Operand, ...]) -> None:
    """Read the items of `with`. A name is followed by its value and its settings, as on a line of the body: `with
    seed 7 track wandb name="x" gbs=64` is `seed 7`, `track wandb name="x"` and `gbs = 64`.
    """
    options, at = clauses.without_units(options), 0
    while at < len(options):
        node, at = options[at], at + 1
        if not (isinstance(node, Ref) and node.is_name):
            clauses.operand(node, None)
            continue
        row, first = schema.BY_PATH.get(node.name), at
        value = options[at] if at < len(options) else None
        if (
            isinstance(value, Number | String | Ref)
            and _lacks_equals(clauses, node.name)
            and _is_value_of(clauses, node.name, value)
        ):
            clauses.without_equals(node.name, value, Span(node.span.start, value.span.end))
            at += 1
            continue
        if row is not None and row.head and row.kind not in (FLAG, BLOCK):
            while at < len(options) and (at == first or row.kind is CHOICES) and _is_head(clauses, row, options[at]):
                at += 1
        elif node.name == "extra" and isinstance(value, Ref | Call):
            at += 1
        while at < len(options) and _belongs_to(clauses, node.name, options[at]):
            at += 2 if _is_unmarked(clauses, node.name, options[at : at + 2]) else 1
        body: list[Operand | Clause] = [*options[first:at]]
        if body:
            clauses.named(Name(node.span, node.name), body, None, node.span)
        else:
            clauses.operand(node, None)


def _belongs_to(clauses: Clauses, name: str, node: Operand) -> bool:
    """Whether an item of `with` is a setting of the name before it, as on a line of the body. If the item could also be
    a setting of the body, as `micro=8` in `eval every=100 micro=8`, it is reported as ambiguous.
    """
    if not isinstance(node, Setting | Ref | Call):
        return False
    inner = node.name if isinstance(node, Ref) else node.name.text
    if name == "extra":
        return isinstance(node, Setting) and inner not in clauses.outer
    if name == "sweep":
        return isinstance(node, Setting) and isinstance(node.value, List)
    choice = clauses.choices.get(name)
    home = schema.BY_PATH[choice].clause if choice else clauses.outer.get(name, name)
    path = f"{'lora' if home in schema.ADAPTERS else home}.{inner}"
    other = inner if inner in schema.CLAUSES and inner in schema.BY_PATH else clauses.outer.get(inner, path)
    if path not in schema.BY_PATH or (not isinstance(node, Setting) and inner in (*schema.CLAUSES, *clauses.choices)):
        return False
    if other != path and name in ("data", "eval"):
        typed = clauses.typed(node.span)
        message = f"`{inner}` after `{name}` may be its own setting, or `{other}`"
        clauses.problem("XP104", message, node.span, help=f"write `{name}({typed})`, or `{typed}` before `{name}`")
        return True
    return other == path


def _is_unmarked(clauses: Clauses, clause: str, pair: tuple[Operand, ...]) -> bool:
    """Whether two items after a clause are one of its settings and a value, without `=`: `optimizer lr 1e-5`."""
    if len(pair) < 2 or not isinstance(pair[0], Ref) or isinstance(pair[1], Setting):
        return False
    row = schema.BY_PATH.get(f"{clause}.{pair[0].name}")
    return row is not None and _lacks_equals(clauses, row.name) and _is_value_of(clauses, row.name, pair[1])


def _is_value_of(clauses: Clauses, name: str, value: Value) -> bool:
    """Whether an item after a setting's name can only be its value: `lr 1e-5`, `dtype bf16`."""
    choices = schema.BY_PATH[clauses.outer[name]].choices
    return isinstance(value, Number | String) or (isinstance(value, Ref) and value.name in choices)


def _is_head(clauses: Clauses, row: schema.Setting, node: Operand) -> bool:
    """Whether an item of `with` is the value of the clause before it."""
    if isinstance(node, Setting):
        return False
    if not isinstance(node, Ref | Call):
        return True
    name = node.name if isinstance(node, Ref) else node.name.text
    if row.choices:
        return name in row.choices or not (
            name in clauses.choices or name in clauses.outer or name in schema.CLAUSES or row.kind is CHOICES
        )
    return name not in clauses.choices and name not in clauses.outer and name not in schema.CLAUSES


def _lacks_equals(clauses: Clauses, name: str) -> bool:
    row = schema.BY_PATH.get(clauses.outer.get(name, ""))
    return row is not None and not row.head and row.kind not in (FLAG, BLOCK)
