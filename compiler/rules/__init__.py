"""The legality rules. `core/index.py` lists their modules; a module is imported only where its `WHEN` is true."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from xpc.compiler.rules.core.rule import Rule
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.package_data import read_json

FIRST_RULE = "XP200"
"""Codes below this one are about syntax and names. After such an error, xpc does not know the values of settings that
the spec does not state.
"""
CHOSEN = ("hardware", "launch", "lora", "method", "optimizer", "precision", "schedule", "strategy", "track")
"""Settings with choices. If a spec misspells a choice, xpc goes on with the default, and findings about the setting are
dropped.
"""


@cache
def rules(module: str) -> list[Rule]:
    """The rules of a module. Importing the module takes most of the time, so it is done only when needed."""
    return [one for one in vars(import_module(f"xpc.compiler.{module}")).values() if isinstance(one, Rule)]


def check(spec: Spec) -> list[Diagnostic]:
    """Run every rule that applies to the spec, and return all findings."""
    # imported here, because core/build.py imports this package before it writes the index
    from xpc.compiler.rules.core.index import MODULES

    found = [one for module, applies in MODULES if applies(spec) for rule in rules(module) for one in rule.run(spec)]
    misspelt = spec.wrong.intersection(CHOSEN)
    if misspelt:
        read = codes()  # drop findings about a misspelt choice, which a default has replaced
        found = [one for one in found if misspelt.isdisjoint(read[one.code][1])]
    if any(one.parts for one in spec.sources):
        from xpc.compiler.spec.folders import fewer

        return fewer(found)
    return found


def codes() -> dict[str, tuple[str, list[str]]]:
    """For each code of a rule, its module and the settings that the rule reads, without importing any rule."""
    table = read_json(__file__, "rules.json")
    return {code: (module, reads) for module, found in table.items() for code, reads in found.items()}


def every() -> tuple[Rule, ...]:
    """All rules, for `xpc explain`, the reference pages and the tests."""
    from xpc.compiler.rules.core.index import MODULES

    return tuple(rule for module, _ in MODULES for rule in rules(module))
