"""What to write instead of lines, numbers and blocks in the forms of other tools. Loaded only for a wrong spec."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.suggest import blocks, numbers, pasted
from xpc.grammar.diagnostic import Diagnostic


def told(problems: Sequence[Diagnostic]) -> tuple[list[Diagnostic], set[str]]:
    """The findings, with what to write instead of other tools' forms; and the settings that such blocks intend."""
    return blocks.told([numbers.told(one) for one in pasted.told(problems)])
