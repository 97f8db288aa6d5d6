"""Evaluation and the best checkpoint (XP51x to XP54x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
