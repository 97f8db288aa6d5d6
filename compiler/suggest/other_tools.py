"""What to write instead of a sentence in other words, and of lines, numbers and blocks in the forms of other tools.

Loaded only for a wrong spec.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.suggest import blocks, gpu_counts, numbers, pasted, sentence_order
from xpc.grammar.diagnostic import Diagnostic


def told(problems: Sequence[Diagnostic]) -> tuple[list[Diagnostic], set[str]]:
    """The findings, with what to write instead of a spoken sentence and of other tools' forms; what the blocks set."""
    return blocks.told([numbers.told(one) for one in sentence_order.told(gpu_counts.told(pasted.told(problems)))])
