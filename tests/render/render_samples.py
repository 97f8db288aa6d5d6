"""Example diagnostics, which the tests of the renderers render."""

from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.source import Source, Span

V100 = "train qwen2.5-3b on infinity-instruct with zero2 gbs=512 micro=11 bf16 ligre\n"
EXAMPLE = """\
XP201 batch-does-not-divide: gbs=512 is not micro x accumulation x 8 GPUs
 --> v100.xp:1:50
  |
1 | train qwen2.5-3b on infinity-instruct with zero2 gbs=512 micro=11 bf16 ligre
  |                                                  ^^^^^^^ 512 / (11 x 8) = 5.82
help: the nearest global batches are gbs=440 (accumulation 5) and gbs=528 (accumulation 6)
"""
"""The output for `divide`."""


def label(source: Source, piece: str, text: str = "") -> Label:
    """Make a label at the first occurrence of `piece` in a text."""
    start = source.text.index(piece)
    return Label(source, Span(start, start + len(piece)), text)


def divide() -> Diagnostic:
    """The error that the language page shows as an example."""
    source = Source("v100.xp", V100)
    return Diagnostic(
        "XP201",
        "batch-does-not-divide",
        "error",
        "gbs=512 is not micro x accumulation x 8 GPUs",
        label(source, "gbs=512", "512 / (11 x 8) = 5.82"),
        help="the nearest global batches are gbs=440 (accumulation 5) and gbs=528 (accumulation 6)",
    )


def spelling() -> Diagnostic:
    """An error with a suggested edit."""
    source = Source("v100.xp", V100)
    where = label(source, "ligre", "unknown")
    return Diagnostic(
        "XP101", "unknown-name", "error", "no setting or choice is called ligre", where, help="liger",
        edits=(Edit(where.span, "liger"),),
    )  # fmt: skip


def conflict() -> Diagnostic:
    """A warning with a second location, far below the first."""
    source = Source("two.xp", "precision bf16\n" + "\n" * 98 + "hardware 8 x v100-32gb\n")
    return Diagnostic(
        "XP301", "bf16-needs-ampere", "warning", "V100 has no bf16",
        label(source, "bf16", "asked for here"), (label(source, "v100-32gb", "compute capability 7.0"),),
        help="precision fp32\nprecision fp16",
    )  # fmt: skip


def assumed() -> Diagnostic:
    """A note without a location in the text."""
    return Diagnostic("XP701", "assumed-hardware", "note", "compiled for 8 x h100-80gb")
