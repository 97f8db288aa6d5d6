"""`extra trl`: precision, attention, kernels, compilation (XP35x to XP39x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
