"""Supervised fine-tuning: what the loss is taken over (XP60x to XP62x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
