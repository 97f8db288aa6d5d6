"""Find the errors of a spec with changed settings. `xpc plan` and `xpc tune` suggest no change that adds an error."""

from __future__ import annotations

from xpc.compiler.rules import rules
from xpc.compiler.rules.core.index import MODULES
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import ERROR

OWN_MODULE = "rules.strategy.memory"
"""The module of the rules about memory. `error_codes` does not run these rules, because they call `error_codes` to find
settings that they can suggest.
"""


def error_codes(spec: Spec) -> set[str]:
    """The codes of all errors in a spec. Errors of the rules about memory are not included. Empty for a legal spec."""
    return {
        found.code
        for module, applies in MODULES
        if module != OWN_MODULE and applies(spec)
        for rule in rules(module)
        for found in rule.run(spec)
        if found.severity == ERROR
    }
