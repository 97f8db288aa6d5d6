"""Whether the rules allow a run with other settings."""

from __future__ import annotations

from collections.abc import Callable

from xpc.compiler.plan.changed import Settings, changed
from xpc.compiler.rules import rules
from xpc.compiler.rules.core.index import MODULES
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import ERROR

OWN_MODULE = "rules.strategy.memory"
"""The rules that ask for changes, and are not asked about them."""


def legality(spec: Spec) -> Callable[[Settings], bool]:
    """Tells of settings whether no rule has an error to say of the changed spec that it has not of this one."""
    before = errors(changed(spec, {}))
    return lambda settings: errors(changed(spec, settings)) <= before


def errors(spec: Spec) -> set[str]:
    """The codes of the errors of every rule, but for those of memory."""
    return {
        found.code
        for module, speaks in MODULES
        if module != OWN_MODULE and speaks(spec)
        for rule in rules(module)
        for found in rule.run(spec)
        if found.severity == ERROR
    }
