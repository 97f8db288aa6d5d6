"""Rewrite lines, numbers and blocks that are in the notation of other tools. Loaded only for a wrong spec."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.suggest import blocks, numbers, pasted
from xpc.grammar.diagnostic import Diagnostic


def rewrite_foreign_forms(problems: Sequence[Diagnostic]) -> tuple[list[Diagnostic], set[str]]:
    """The findings, with what to write instead; and the paths of the settings that blocks mean."""
    return blocks.rewrite_blocks([numbers.rewrite_number(one) for one in pasted.rewrite_options(problems)])
