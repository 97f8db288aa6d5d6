"""The help for illegal words after the dataset in the first line: `for 3 epochs` for `train M on D 3 epochs`."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.grammar.place import Place

FORMS = (
    (re.compile(r"(?:(?:over|during|in|about)\s+)?(\d[\d_]*)\s*(epochs?|steps?)\b"), r"write `for \1 \2`"),
    (re.compile(r"(?:num_)?(?:train_)?(epochs)\s*=?\s*(\d+)"), r"write `for \2 \1`"),
    (re.compile(r"(?:max_)?(steps)\s*=?\s*(\d+)"), r"write `for \2 \1`"),
    (re.compile(r"(using|and|via|plus|by)\b"), r"write `with` instead of `\1`"),
    (re.compile(r"without\s+(\S+)"), r"leave `without \1` out: choices go after `with`"),
    (re.compile(r"split\s*=?\s*\"?([\w-]+)"), r"write `{data}[\1]`: the split follows the dataset's name"),
    (re.compile(r"(?:in)?to\s+\"?([^\s\"]+)"), r'write `save "\1"` on a line of its own'),
    (re.compile(r"on\s+(\d+)\s*(?:x\s*)?([\w-]+)"), r"write `hardware \1 x \2` on a line of its own"),
)
"""Patterns for the text after the dataset, each with the text of the help."""


def help_for(place: Place) -> str:
    """Return the help for illegal text that follows the dataset in the first line, such as `3 epochs`."""
    for pattern, form in FORMS:
        if found := pattern.match(place.source.text, place.span.start):
            return found.expand(form).replace("{data}", place.word)
    return "choices go after `with`"
