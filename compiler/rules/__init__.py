"""The legality rules: an explicit tuple, so that what is checked can be read in one place."""

from __future__ import annotations

from xpc.compiler.rules import attention, batch, data, kernels, precision, saving, sharding
from xpc.compiler.rules.rule import Rule
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Diagnostic

RULES: tuple[Rule, ...] = (
    *batch.RULES,
    *precision.RULES,
    *attention.RULES,
    *kernels.RULES,
    *sharding.RULES,
    *data.RULES,
    *saving.RULES,
)


def check(spec: Spec) -> list[Diagnostic]:
    """Every finding of every rule."""
    return [found for one in RULES for found in one.run(spec)]
