"""Find settings in the header that are written as several words: `with gradient checkpointing, batch size 64`.

This module is imported only for a header that contains unknown words.
"""

from __future__ import annotations

from xpc.compiler.language import schema
from xpc.grammar.source import Span
from xpc.grammar.tree import Name, Number, Ref, String

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.language.expand.clauses import Clauses, Operand

MOST = 4
"""The largest number of words that are read together as one setting."""
WITHOUT = ("no", "without", "not")
JOINING = ("and", "plus", "using")


def without_phrases(clauses: Clauses, options: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """Report and remove settings that are written as several words, and words such as `and`. Returns the remaining
    items after `with`.
    """
    kept: list[Operand] = []
    at = 0
    while at < len(options):
        node = options[at]
        words = _words(options[at : at + MOST])
        if words and words[0].name in JOINING:
            message = f"settings are separated by spaces, not by `{words[0].name}`"
            clauses.problem("XP101", message, node.span, help=f"leave `{words[0].name}` out")
            at += 1
            continue
        if len(words) > 1 and words[0].name in WITHOUT and clauses.is_known(words[1].name):
            message, span = f"`{words[0].name}` is not a word of the language", Span(node.span.start, words[1].span.end)
            clauses.problem("XP101", message, span, help=f"leave `{words[0].name} {words[1].name}` out")
            at += 2
            continue
        length = next((one for one in range(len(words), 1, -1) if _is_phrase(clauses, words[:one])), 0)
        if not length:
            kept.append(node)
            at += 1
            continue
        after = options[at + length] if at + length < len(options) else None
        value = after if isinstance(after, Number | String) else None
        name = "_".join(one.name for one in words[:length])
        span = Span(node.span.start, words[length - 1].span.end)
        clauses.unknown(Name(span, name), None, value, "=" if value else "")
        at += length + (value is not None)
    return tuple(kept)


def _words(options: tuple[Operand, ...]) -> list[Ref]:
    """The plain words at the beginning of `options`, the items after `with`."""
    words: list[Ref] = []
    for one in options:
        if not (isinstance(one, Ref) and one.is_name):
            break
        words.append(one)
    return words


def _is_phrase(clauses: Clauses, words: list[Ref]) -> bool:
    """Whether several words are a setting together (`batch size`), although at least one of them has no
    meaning alone.
    """
    first, second, *_ = (one.name for one in words)
    clause = "lora" if first in schema.ADAPTERS else first
    if f"{clause}.{second}" in schema.BY_PATH or all(clauses.is_known(one.name) for one in words):
        return False
    row = schema.BY_PATH.get(first)
    if row is not None and (second in row.choices or (row.head and not row.choices)):
        return False
    return clauses.advisor().is_known("_".join(one.name for one in words))
