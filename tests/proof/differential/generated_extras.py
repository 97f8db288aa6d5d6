"""Random `extra` blocks. Each block has arguments that `extra` accepts, and each value has the type of its argument.

Half of the numbers are usual ones. The other half tests limits: zero, negative numbers, the limits in the stack's
record, numbers beyond these limits, fractions, and very large numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import generated

from xpc.compiler import stacks
from xpc.compiler.language import extras
from xpc.compiler.stacks import Stack


def lines(draw: Random, stack: Stack, method: str, library: str) -> list[str]:
    """One to three lines of an `extra` block. An argument is left out if no value of its type can be written in a
    spec.
    """
    names = sorted(extras.legal_names(stack, library))
    if library == "trl":
        fields = stack.fields(_config(stack, method))
        names = [name for name in names if name in fields]
    out = []
    for name in draw.sample(names, min(len(names), draw.choice((1, 1, 2, 3)))):
        typed = _trl(draw, stack, method, name) if library == "trl" else _launched(draw, stack, library, name)
        if typed is not None:
            out.append(f"{name} = {typed}")
    return out


def _config(stack: Stack, method: str) -> str:
    return stack.config(method) if stack.refused(method) is None else stacks.SFT


def _trl(draw: Random, stack: Stack, method: str, name: str) -> str | None:
    known = stack.fields(_config(stack, method))[name]
    words = _words(known.type)
    if name in generated.TRL and (draw.random() < 0.5 or not words & NUMBERS or not generated.TRL[name]):
        return draw.choice(generated.TRL[name]) if generated.TRL[name] else None
    if known.choices:
        return _plain(draw.choice(known.choices))
    return _of_type(draw, known.type, known.effective)


def _launched(draw: Random, stack: Stack, library: str, name: str) -> str | None:
    record = stack.launch_keys(library).get(name)
    if record is None:
        return None
    choices = record.get("choices")
    if isinstance(choices, list):
        return _plain(draw.choice(choices))
    bounds = [bound for end in ("low", "above", "high") if isinstance(bound := record.get(end), int | float)]
    return _of_type(draw, str(record["type"]), record.get("default"), bounds)


NUMBERS = {"int", "float"}
WHOLE = (0, 0, -1, -8, 1, 2, 3, 64)
REAL = (0.0, 0.0, -0.5, -1.0, 1.0, 1.5, 2.0, 0.001, 100.0)


def _words(kind: str) -> set[str]:
    return {word.strip() for word in kind.split("|")} - {"None"}


def _of_type(draw: Random, kind: str, default: object, bounds: Sequence[float] = ()) -> str | None:
    words = _words(kind)
    if "bool" in words and (not words & NUMBERS or draw.random() < 0.5):
        return draw.choice(("true", "false"))
    if words & NUMBERS:
        usual = default if isinstance(default, int | float) and not isinstance(default, bool) else 1
        if draw.random() < 0.5:
            return _plain(draw.choice((usual, usual, 1 if "int" in words else 0.5)))
        return _plain(draw.choice(at_bounds(words, bounds)))
    return None


def at_bounds(words: set[str], bounds: Sequence[float]) -> tuple[float, ...]:
    """Numbers at or beyond a limit, which a library may, or should, refuse."""
    real = "float" in words
    near = [one + step for one in bounds for step in ((0, 0.5, -0.5) if real else (0, 1, -1))]
    return (*(REAL if real else WHOLE), *((0.5,) if not real else ()), *near)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else f"{value}"
