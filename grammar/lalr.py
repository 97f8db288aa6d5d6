"""An LALR parser with the tables that Lark generated from xp.lark (`python -m xpc.grammar.build`).

Lark itself is not imported, because its import would take a fifth of the time of `xpc check`. A test compares this
parser's trees and errors with those of Lark.
"""

from __future__ import annotations

import re

from xpc.grammar._tables import ACCEPT, FIXED, IGNORED, PATTERNS, RULES, STATES

END = "$END"
_ignored = "|".join(PATTERNS[name] for name in IGNORED)
_tokens = "|".join(f"(?P<{name}>{pattern})" for name, pattern in PATTERNS.items() if name not in IGNORED)
_match = re.compile(f"(?:{_ignored})*(?:{_tokens})?").match


class Node:
    """A node of the parse tree: a token with its text, or a phrase (made by a rule of xp.lark) with its parts. `end` is
    the offset after the node's last character.
    """

    __slots__ = ("end", "kind", "parts", "start", "text")

    def __init__(self, kind: str, start: int, end: int, text: str = "", parts: list[Node] | None = None) -> None:
        self.kind, self.start, self.end, self.text, self.parts = kind, start, end, text, parts or []


class UnexpectedToken(Exception):
    """Raised for a token that is illegal at its position. The token's `kind` is END at the end of the text, and "" if
    the character at this position begins no token.

    `stack` contains the tokens and phrases that the parser has read before the illegal token.
    """

    def __init__(self, token: Node, stack: tuple[Node, ...]) -> None:
        super().__init__(token.text)
        self.token, self.stack = token, stack


def parse(text: str) -> Node:
    """Parse a text to a tree. Raises UnexpectedToken at the first syntax error."""
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
    """Read the next token. A word is a keyword only if the parser accepts this keyword here; otherwise it is a name."""
    found = _match(text, at)
    assert found is not None  # the pattern always matches, because all its parts are optional
    kind, at = found.lastgroup, found.end()
    if kind is None:
        return Node("", at, at + 1, text[at]) if at < len(text) else Node(END, at, at)
    value = found[kind]
    fixed = FIXED.get(value)
    if fixed is not None and (kind != "NAME" or fixed in actions):
        kind = fixed
    return Node(kind, at - len(value), at, value)


def _reduce(states: list[int], values: list[Node], number: int) -> None:
    """Replace the parts of a completed rule, on the parser's stacks, by one phrase. A rule whose name begins with `_`
    makes no phrase: its parts become parts of the enclosing phrase.
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
        else:  # the list is extended in place, because a copy for each new item would take quadratic time
            parts = part.parts
    start = taken[0].start if taken else 0
    values.append(Node(kind, start, taken[-1].end if taken else start, parts=parts))
    states.append(STATES[states[-1]][kind])
