"""The check with which `xpc plan` and `xpc tune` find out whether a run with other settings is legal."""

from __future__ import annotations

from xpc.compiler.rules import rules
from xpc.compiler.rules.core.index import MODULES
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import ERROR

OWN_MODULE = "rules.strategy.memory"
"""The rules about memory, which themselves use this check to suggest settings."""


def error_codes(spec: Spec) -> set[str]:
    """The codes of the errors of every rule, except the rules about memory."""
    return {
        found.code
        for module, applies in MODULES
        if module != OWN_MODULE and applies(spec)
        for rule in rules(module)
        for found in rule.run(spec)
        if found.severity == ERROR
    }
