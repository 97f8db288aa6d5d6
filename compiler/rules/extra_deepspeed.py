"""`extra deepspeed`: keys of the DeepSpeed configuration (XP44x, XP49x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
