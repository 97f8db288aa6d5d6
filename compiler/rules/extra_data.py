"""`extra trl`: data, loader, losses, hub and logging (XP55x to XP58x, XP75x to XP77x, XP85x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
