"""Optimizers and schedules, their arguments and their packages (XP22x to XP26x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
