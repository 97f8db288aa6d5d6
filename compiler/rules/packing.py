"""Packed and flattened rows: what keeps documents apart (XP31x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
