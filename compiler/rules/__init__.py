"""The legality rules. `core/index.py` lists their modules; a module is imported only where its `WHEN` is true."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from xpc.compiler.rules.core.rule import Rule
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.package_data import read_json

CHOSEN = ("hardware", "launch", "lora", "method", "optimizer", "precision", "schedule", "strategy", "track")
"""Choices of a spec. Where one is misspelt and a default replaces it, rules that read it report nothing."""


@cache
def rules(module: str) -> list[Rule]:
    """The rules of a module. Importing the module takes the time."""
    return [one for one in vars(import_module(f"xpc.compiler.{module}")).values() if isinstance(one, Rule)]


def check(spec: Spec) -> list[Diagnostic]:
    """Every finding of every rule that applies."""
    from xpc.compiler.rules.core.index import MODULES  # generated: its generator imports rules without it

    found = [one for module, applies in MODULES if applies(spec) for rule in rules(module) for one in rule.run(spec)]
    misspelt = spec.wrong.intersection(CHOSEN)
    if misspelt:
        read = codes()  # such a rule would report a default that the spec does not write
        found = [one for one in found if misspelt.isdisjoint(read[one.code][1])]
    if any(one.parts for one in spec.sources):
        from xpc.compiler.spec.folders import fewer

        return fewer(found)
    return found


def codes() -> dict[str, tuple[str, list[str]]]:
    """Each code with its module and the settings that its rule reads; this imports no rule."""
    table = read_json(__file__, "rules.json")
    return {code: (module, reads) for module, found in table.items() for code, reads in found.items()}


def every() -> tuple[Rule, ...]:
    """All rules, for explanations, the reference and the tests."""
    from xpc.compiler.rules.core.index import MODULES

    return tuple(rule for module, _ in MODULES for rule in rules(module))
