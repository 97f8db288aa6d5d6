"""Random `extra` blocks: names that the escape may hold, with values that their types allow."""

from __future__ import annotations

from random import Random

import drawn

from xpc.compiler import extras, targets
from xpc.compiler.targets import Target


def lines(draw: Random, target: Target, method: str, escape: str) -> list[str]:
    """One to three lines of a block; fewer where a drawn name has a type that a spec cannot write."""
    names = sorted(extras.legal_names(target, escape))
    if escape == "trl":
        fields = target.fields(_config(target, method))
        names = [name for name in names if name in fields]
    out = []
    for name in draw.sample(names, min(len(names), draw.choice((1, 1, 2, 3)))):
        typed = _trl(draw, target, method, name) if escape == "trl" else _launched(draw, target, escape, name)
        if typed is not None:
            out.append(f"{name} = {typed}")
    return out


def _config(target: Target, method: str) -> str:
    return target.config(method) if target.refused(method) is None else targets.SFT


def _trl(draw: Random, target: Target, method: str, name: str) -> str | None:
    known = target.fields(_config(target, method))[name]
    if name in drawn.TRL:
        return draw.choice(drawn.TRL[name]) if drawn.TRL[name] else None
    if known.choices:
        return _plain(draw.choice(known.choices))
    return _of_type(draw, known.type, known.effective)


def _launched(draw: Random, target: Target, escape: str, name: str) -> str | None:
    record = target.launch_keys(escape).get(name)
    if record is None:
        return None
    choices = record.get("choices")
    if isinstance(choices, list):
        return _plain(draw.choice(choices))
    return _of_type(draw, str(record["type"]), record.get("default"))


def _of_type(draw: Random, kind: str, default: object) -> str | None:
    words = {word.strip() for word in kind.split("|")} - {"None"}
    if "bool" in words:
        return draw.choice(("true", "false"))
    if words & {"int", "float"}:
        usual = default if isinstance(default, int | float) and not isinstance(default, bool) else 1
        return _plain(draw.choice((usual, usual, 1 if "int" in words else 0.5)))
    return None


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else f"{value}"
