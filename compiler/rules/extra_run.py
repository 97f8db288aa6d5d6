"""`extra trl`: batch, optimizer, evaluation, saving (XP27x to XP29x, XP73x, XP74x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
