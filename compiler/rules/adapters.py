"""LoRA and quantized bases (XP45x to XP48x)."""

from __future__ import annotations

from xpc.compiler.rules.rule import Rule

RULES: tuple[Rule, ...] = ()
