"""`extra trl`: arguments that meet the strategy (XP42x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
