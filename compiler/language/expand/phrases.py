"""Find settings in the header that are written as several words: `with gradient checkpointing, batch size 64`.

This module is imported only for a header in which a word is unknown, lacks its value, or belongs to the next word.
"""

from __future__ import annotations

from xpc.compiler import registry
from xpc.compiler.language import schema
from xpc.compiler.language.advisor import UnknownName
from xpc.compiler.language.expand.belonging import belongs_to, needs_value
from xpc.compiler.language.expand.clauses import Clauses, Operand
from xpc.compiler.language.kinds import FLAG
from xpc.grammar.source import Span
from xpc.grammar.tree import Name, Number, Ref, String

MOST = 4
"""One setting may be written in at most this many words."""
WITHOUT = ("no", "without", "not")
OF = ("of", "is", "to", "at", "equals")
JOINING = ("and", "plus", "using")
ARTICLES = ("a", "an", "the")


def without_phrases(clauses: Clauses, options: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Report and remove filler words such as `and`, and settings that are written as several words. Returns the
    remaining items after `with`.
    """
    kept: list[Operand] = []
    at = 0
    while at < len(options):
        node = options[at]
        words = _words(options[at : at + MOST])
        if words and words[0].name in (*JOINING, *ARTICLES):
            article = f"`{words[0].name}` is not a word of the language"
            joining = f"settings are separated by spaces, not by `{words[0].name}`"
            message = article if words[0].name in ARTICLES else joining
            word = Span(node.span.start, options[at + 1].span.start) if at + 1 < len(options) else node.span
            clauses.problem("XP101", message, word, help=f"leave `{words[0].name}` out", edit="")
            at += 1
            continue
        value = options[at + 2] if at + 2 < len(options) else None
        if len(words) == 2 and words[1].name in OF and words[0].name in clauses.outer and isinstance(value, Number):
            # the words name the setting before its value, as in `lr of 1e-5`
            clauses.valued(words[0], value, f"{words[0].name}={clauses.typed(value.span)}")
            at += 3
            continue
        follows = options[at + 1] if at + 1 < len(options) else None
        if words and follows is not None and _is_pair(clauses, words, follows, value):
            at += 2
            continue
        if words and isinstance(follows, Number) and _is_before_adapter(clauses, words[0], follows, value):
            at += 3
            continue
        alone = [one.name for one in words[1:] if not clauses.is_known(one.name)]
        if len(words) > 1 and alone == [words[1].name] and clauses.advisor().joined_value(words[0].name, alone):
            kept += words[:2]  # a clause and another spelling of its choice, as in `method finetune`
            at += 2
            continue
        lengths = range(len(words), 1, -1)
        length = next((one for one in lengths if _is_phrase(clauses, words[:one], options[at + one :])), 0)
        if not length:
            kept.append(node)
            at += 1
            continue
        after, between = _value_after(options[at + length :])
        if isinstance(after, Ref) and after.name not in ("true", "false"):
            after = None
        value = after if isinstance(after, Number | String | Ref) else None
        name = "_".join(one.name for one in words[:length])
        span = Span(node.span.start, words[length - 1].span.end)
        number = kept[-1] if kept and _is_alone(kept) else None
        if value is None and isinstance(number, Number):
            # the number stands before its setting, as in `1e-5 learning rate`
            number_before(clauses, number, Ref(span, name))
            kept.pop()
            at += length
            continue
        clauses.unknown(Name(span, name), None, value, "=" if value else "")
        at += length + between + (value is not None)
    return tuple(kept)


def _is_alone(kept: list[Operand]) -> bool:
    """Whether the last item is not the value of the item before it. False for `seed 7`, in which `7` is the value of
    `seed`.
    """
    before = kept[-2] if len(kept) > 1 else None
    return bool(kept) and not (isinstance(before, Ref) and before.is_name)


def _is_pair(clauses: Clauses, words: list[Ref], follows: Operand, third: Operand | None) -> bool:
    """Report two items that together make one setting: `no packing`, `zero 3` or `cosine schedule`. Returns False,
    without a report, for any other two items.
    """
    first, span = words[0].name, Span(words[0].span.start, follows.span.end)
    joined = isinstance(follows, Number) and f"{first}{follows.text}" in clauses.choices
    if isinstance(follows, Number) and joined and not (clauses.is_known(first) and follows.text.isdecimal()):
        clauses.valued(words[0], follows, f"{first}{follows.text}")
        return True
    if len(words) < 2:
        return False
    second = words[1].name
    if first in WITHOUT and (clauses.is_known(second) or clauses.advisor().is_known(second)):
        row = schema.BY_PATH.get(clauses.outer.get(second, second))
        form = f"{second}=false" if row is not None and row.kind is FLAG and row.default is not False else None
        help = f"write `{form}`" if form else f"leave `{first} {second}` out"
        clauses.problem("XP101", f"`{first}` is not a word of the language", span, help=help, edit=form)
        return True
    # the second word is a clause with settings, as in `dpo method beta=0.5`, which is legal
    has_settings = third is not None and belongs_to(clauses, second, third)
    if clauses.choices.get(first) == second and not has_settings:
        message = f"`{first}` is a choice of `{second}`, and stands alone"
        clauses.problem("XP101", message, span, help=f"write `{first}`", edit=first)
        return True
    return False


def number_before(clauses: Clauses, number: Number, word: Ref) -> bool:
    """Report a number that stands before its setting: `10% warmup`, `3 epochs`, `8 h100`. Returns False, without a
    report, if the number does not belong to the word.
    """
    name, typed = word.name, clauses.typed(number.span)
    span, message = Span(number.span.start, word.span.end), f"`{typed} {name}` is not a legal form"
    row = schema.BY_PATH.get(clauses.outer.get(name, ""))
    if name in ("epoch", "epochs", "step", "steps"):
        help = f"write `for {typed} {name}` after the data, before `with`"
        clauses.problem("XP104", message, span, help=help)
    elif row is not None and row.kind is not FLAG and not row.head:
        clauses.valued(number, word, f"{name}={typed}")
    elif cards := [card for card in registry.gpu_names() if card.startswith(f"{name.lower()}-")]:
        clauses.problem(
            "XP104", message, span, help="write " + " or ".join(f"`{typed} x {card}`" for card in cards[:4])
        )
    elif not clauses.is_known(name) and clauses.advisor().is_known(name):
        unknown = UnknownName(name, None, number, typed, clauses.label(word.span), clauses.header)
        found = clauses.advisor().unknown_name(unknown, clauses.unknowns)
        form = found.edit if found.edit is None or found.replaces_value else f"{found.edit}={typed}"
        clauses.problem(found.code, message, span, help=f"write `{form}`" if form else found.help, edit=form)
    else:
        return False
    return True


def _words(options: tuple[Operand, ...]) -> list[Ref]:
    """The plain words at the beginning of `options`, the items after `with`."""
    words: list[Ref] = []
    for one in options:
        if not (isinstance(one, Ref) and one.is_name):
            break
        words.append(one)
    return words


def _value_after(items: tuple[Operand, ...]) -> tuple[Operand | None, int]:
    """Return the value after a phrase such as `batch size`, and the number of items before it: 0 for `batch size 64`, 1
    for `batch size of 64`.
    """
    first, second = (*items[:2], None, None)[:2]
    if isinstance(first, Ref) and first.name in OF and isinstance(second, Number):
        return second, 1
    return first, 0


def _is_before_adapter(clauses: Clauses, word: Ref, value: Number, adapter: Operand | None) -> bool:
    """If a setting of an adapter stands before the adapter's name, report it and return True: `rank 16 lora` should be
    `lora(rank=16)`. Otherwise return False.
    """
    if not isinstance(adapter, Ref) or adapter.name not in schema.ADAPTERS or f"lora.{word.name}" not in schema.BY_PATH:
        return False
    clauses.valued(word, adapter, f"{adapter.name}({word.name}={clauses.typed(value.span)})")
    return True


def _is_phrase(clauses: Clauses, words: list[Ref], after: tuple[Operand, ...]) -> bool:
    """Whether several words together name a setting, as `batch size` does. At least one of the words must have no
    meaning alone, or lack its value (`micro batch 4`, `cosine decay`). `after` are the items that follow.
    """
    first, second, *_ = (one.name for one in words)
    clause = "lora" if first in schema.ADAPTERS else first
    value = isinstance(_value_after(after)[0], Number)
    if f"{clause}.{second}" in schema.BY_PATH:
        return False
    if all(clauses.is_known(one.name) for one in words):
        lacks = needs_value(clauses, first) or (needs_value(clauses, second) and not value)
        return lacks and clauses.advisor().is_known("_".join(one.name for one in words))
    if clause == "lora" and value and len(words) == 2:
        return clauses.advisor().is_known(f"lora_{second}")  # `lora r 16`
    row = schema.BY_PATH.get(first)
    if row is not None and (second in row.choices or (row.head and not row.choices)):
        return False
    return clauses.advisor().is_known("_".join(one.name for one in words))
