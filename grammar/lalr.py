"""Parse a text with the tables that Lark made from xp.lark (`python -m xpc.grammar.build`).

Lark itself is not loaded, because its import takes a fifth of a complete `xpc check`. This module cuts the text into
tokens and looks them up in the tables. A test compares trees and errors with Lark's own.
"""

from __future__ import annotations

import re

from xpc.grammar._tables import ACCEPT, FIXED, IGNORED, PATTERNS, RULES, STATES

END = "$END"
_ignored = "|".join(PATTERNS[name] for name in IGNORED)
_tokens = "|".join(f"(?P<{name}>{pattern})" for name, pattern in PATTERNS.items() if name not in IGNORED)
_match = re.compile(f"(?:{_ignored})*(?:{_tokens})?").match


class Node:
    """A token of xp.lark with its text, or a phrase with its parts. `end` is exclusive."""

    __slots__ = ("end", "kind", "parts", "start", "text")

    def __init__(self, kind: str, start: int, end: int, text: str = "", parts: list[Node] | None = None) -> None:
        self.kind, self.start, self.end, self.text, self.parts = kind, start, end, text, parts or []


class UnexpectedToken(Exception):
    """Raised for a token that is illegal at its place. `kind` is "" for a character that begins no token, and END at
    the end.

    `stack` is what the parser has read before.
    """

    def __init__(self, token: Node, stack: tuple[Node, ...]) -> None:
        super().__init__(token.text)
        self.token, self.stack = token, stack


def parse(text: str) -> Node:
    """The tree of a text. Raises UnexpectedToken."""
    states, values = [0], list[Node]()
    at = 0
    while True:
        token = _token(text, at, STATES[states[-1]])
        at = token.end
        while (action := STATES[states[-1]].get(token.kind)) is not None and action < 0:
            _reduce(states, values, -1 - action)
            if token.kind == END and states[-1] == ACCEPT:
                return values[0]
        if action is None:
            raise UnexpectedToken(token, tuple(values))
        states.append(action)
        values.append(token)


def _token(text: str, at: int, actions: dict[str, int]) -> Node:
    """The next token. A word counts as a keyword only where the parser accepts that keyword, otherwise as a name."""
    found = _match(text, at)
    assert found is not None  # every part of the pattern is optional
    kind, at = found.lastgroup, found.end()
    if kind is None:
        return Node("", at, at + 1, text[at]) if at < len(text) else Node(END, at, at)
    value = found[kind]
    fixed = FIXED.get(value)
    if fixed is not None and (kind != "NAME" or fixed in actions):
        kind = fixed
    return Node(kind, at - len(value), at, value)


def _reduce(states: list[int], values: list[Node], number: int) -> None:
    """Replace the parts of a rule on the stacks by its phrase. A rule whose name begins with `_` has no phrase: its
    parts become parts of the phrase around them.
    """
    kind, size, kept = RULES[number]
    taken = values[len(values) - size :]
    if size:
        del states[-size:], values[-size:]
    parts: list[Node] = []
    for index in kept:
        part = taken[index]
        if part.kind[0] != "_":
            parts.append(part)
        elif parts:
            parts += part.parts
        else:  # a list that grows by one item per step is not copied in each step
            parts = part.parts
    start = taken[0].start if taken else 0
    values.append(Node(kind, start, taken[-1].end if taken else start, parts=parts))
    states.append(STATES[states[-1]][kind])
