"""Launchers, nodes and wheels (XP80x to XP84x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
