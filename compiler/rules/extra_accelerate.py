"""`extra accelerate`: keys of the launcher's configuration (XP43x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
