"""Reinforcement with generated completions (XP66x to XP69x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
