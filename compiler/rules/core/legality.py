"""The check with which `xpc plan` and `xpc tune` find out whether a run with other settings is legal."""

from __future__ import annotations

from xpc.compiler.rules import rules
from xpc.compiler.rules.core.index import MODULES
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import ERROR

OWN_MODULE = "rules.strategy.memory"
"""The module of the rules about memory. These rules call `error_codes` to suggest settings, so `error_codes` must not
run them.
"""


def error_codes(spec: Spec) -> set[str]:
    """The codes of all errors in a spec, except those of the rules about memory; empty for a legal spec."""
    return {
        found.code
        for module, applies in MODULES
        if module != OWN_MODULE and applies(spec)
        for rule in rules(module)
        for found in rule.run(spec)
        if found.severity == ERROR
    }
