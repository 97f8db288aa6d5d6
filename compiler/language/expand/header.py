"""Read the settings that the header lists after `with`. In `with seed 7 track wandb name="x"`, the names are `seed` and
`track`; each is followed by its value and by its own settings.
"""

from __future__ import annotations

from itertools import pairwise

from xpc.compiler import registry
from xpc.compiler.language import schema
from xpc.compiler.language.expand.belonging import belongs_to, needs_value
from xpc.compiler.language.expand.clauses import Clauses, Operand
from xpc.compiler.language.kinds import BLOCK, CHOICES, FLAG
from xpc.grammar import units
from xpc.grammar.source import Span
from xpc.grammar.tree import Call, Clause, Name, Number, Ref, Setting, Value


def read_options(clauses: Clauses, options: tuple[Operand, ...]) -> None:
    """Read the items after `with`. `with seed 7 track wandb name="x" gbs=64` is the same as three lines: `seed 7`,
    `track wandb name="x"` and `gbs = 64`.
    """
    options, at = clauses.without_units(options), 0
    if _has_phrase(clauses, options):
        # imported here, because only a header with such words needs it
        from xpc.compiler.language.expand.phrases import without_phrases

        options = without_phrases(clauses, options)
    while at < len(options):
        node, at = options[at], at + 1
        if not (isinstance(node, Ref) and node.is_name):
            card = options[at] if at < len(options) else None
            if isinstance(node, Number) and isinstance(card, Ref) and registry.find_gpu(card.name.lower()):
                # the items are a number and a GPU, without the `x` between them: `8 h100-80gb`
                clauses.valued(node, card, f"{node.text} x {card.name}")
                at += 1
                continue
            if isinstance(node, Number) and isinstance(card, Ref) and _is_number_before(clauses, node, options[at:]):
                at += 1
                continue
            clauses.operand(node, None)
            continue
        row, first = schema.BY_PATH.get(node.name), at
        value = options[at] if at < len(options) else None
        if isinstance(value, Value) and _is_unmarked(schema.BY_PATH.get(clauses.outer.get(node.name, "")), value):
            clauses.without_equals(node.name, value, Span(node.span.start, value.span.end))
            at += 1
            continue
        unit = options[at + 1] if at + 1 < len(options) else None
        counted = isinstance(unit, Ref) and units.is_unit(unit.name)  # `100 steps` after `lora` is no rank
        if isinstance(value, Number) and not counted and (row is None or not row.head or row.kind in (FLAG, BLOCK)):
            # imported here, because only a wrong spec needs it
            from xpc.compiler.language.expand.missing_equals import implied_setting

            form = implied_setting(node.name, clauses.typed(value.span))
            if form:  # the number is the value of a setting of the clause: in `lora 16`, it is the value of `rank`
                clauses.valued(node, value, f"{node.name}({form.replace(' = ', '=')})")
                at += 1
                continue
        if row is not None and row.head and row.kind not in (FLAG, BLOCK):
            while at < len(options) and (at == first or row.kind is CHOICES) and _is_head(clauses, row, options[at]):
                at += 1
        elif node.name == "extra" and isinstance(value, Ref | Call):
            at += 1
        while at < len(options) and belongs_to(clauses, node.name, options[at]):
            at += _length(node.name, options[at : at + 3])
        body: list[Operand | Clause] = [*options[first:at]]
        if body:
            clauses.named(Name(node.span, node.name), body, None, node.span)
        else:
            clauses.operand(node, None)


def _has_phrase(clauses: Clauses, options: tuple[Operand, ...]) -> bool:
    """Whether items after `with` may be several words for one setting: a word is unknown (`batch size 64`) or lacks its
    value (`micro batch 4`), or two known items belong together (`cosine schedule`, `adamw 8bit`).
    """
    names = [one.name if isinstance(one, Ref) and one.is_name else "" for one in options]
    if any(one and not clauses.is_known(one) for one in names):
        return True
    if any(follows and needs_value(clauses, one) for one, follows in pairwise((*names, "the end"))):
        return True
    return any(
        (other in schema.CLAUSES and clauses.choices[one] == other)
        or (isinstance(follows, Number) and f"{one}{follows.text}" in clauses.choices)
        for one, other, follows in zip(names, names[1:], options[1:], strict=False)
        if one in clauses.choices
    )


def _is_number_before(clauses: Clauses, number: Number, after: tuple[Operand, ...]) -> bool:
    """Report a number that stands before its setting, as in `10% warmup`. Returns False, without a report, if the next
    word does not belong to the number, or is followed by a number of its own (`1e-5 warmup 3%`).
    """
    word = after[0]
    if not isinstance(word, Ref) or not word.is_name or (len(after) > 1 and isinstance(after[1], Number)):
        return False
    # imported here, because only a wrong spec needs it
    from xpc.compiler.language.expand.phrases import number_before

    return number_before(clauses, number, word)


def _length(clause: str, options: tuple[Operand, ...]) -> int:
    """How many items the first setting after a clause takes up: 1 for `lr=1e-5`, 2 for `lr 1e-5` (without `=`), and 3
    for `every 100 steps` (without `=`, with a unit).
    """
    if len(options) < 2 or not isinstance(options[0], Ref) or isinstance(options[1], Setting):
        return 1
    row = schema.BY_PATH.get(f"{'lora' if clause in schema.ADAPTERS else clause}.{options[0].name}")
    if not _is_unmarked(row, options[1]):
        return 1
    unit = options[2] if len(options) > 2 else None
    return 3 if isinstance(unit, Ref) and units.is_unit(unit.name) else 2


def _is_unmarked(row: schema.Setting | None, value: Value) -> bool:
    """Whether an item is the value of the setting before it, although the `=` is missing: `1e-5` in `lr 1e-5`, `bf16`
    in `dtype bf16`.
    """
    if row is None or row.head or row.kind in (FLAG, BLOCK):
        return False
    # imported here, because it is needed only if a `=` may be missing
    from xpc.compiler.language.expand.missing_equals import can_be_value

    return can_be_value(row, value)


def _is_head(clauses: Clauses, row: schema.Setting, node: Operand) -> bool:
    """Whether an item after `with` is a clause's own value, directly after the clause's name: `wandb` in `with track
    wandb`.
    """
    if isinstance(node, Setting):
        return False
    if not isinstance(node, Ref | Call):
        return True
    name = node.name if isinstance(node, Ref) else node.name.text
    if row.choices:
        return name in row.choices or not (clauses.is_known(name) or row.kind is CHOICES)
    return not clauses.is_known(name)
