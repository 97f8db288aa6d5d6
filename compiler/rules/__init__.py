"""The legality rules. `core/index.py` lists the modules of rules. To save time, a module is imported only if its `WHEN`
is true for the spec.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.rule import Rule
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import ERROR, Diagnostic
from xpc.grammar.package_data import read_json

FIRST_RULE = "XP200"
"""Errors with a code below this one are about syntax and names. If a spec has such an error, xpc cannot tell which
settings the user left out on purpose.
"""
ASSUMED = "XP190"
CHOSEN = {"hardware", "launch", "lora", "method", "optimizer", "precision", "schedule", "strategy", "track"}
"""Settings on which most of a spec depends. If the value of one of them is wrong, all findings of rules that read the
setting are dropped."""
MANY = 30
"""A rule that reads at least this many settings is about each of them alone, or, as XP480, about the complete run. Its
findings are not dropped if the value of another setting than `CHOSEN` is wrong."""
KEYS = {"XP791", "XP911"}
"""Codes about secret keys. Their findings are never dropped, because they hide the key in what xpc prints."""
USUALLY_ELSEWHERE: tuple[Path, ...] = (
    "batch.gbs", "batch.seq", "data.holdout", "eval.data", "eval.split", "hardware", "method", "model.chat_template",
    "precision",
)  # fmt: skip
"""Settings that a base (a spec without a line `train ...`) may leave to the specs that extend the base. If a base does
not state one of these settings, findings of the rules that read the setting are dropped.
"""


@cache
def rules(module: str) -> list[Rule]:
    """Import a module of rules, and return its rules. The import takes most of the time, so callers import a module
    only if its rules apply.
    """
    return [one for one in vars(import_module(f"xpc.compiler.{module}")).values() if isinstance(one, Rule)]


def check(spec: Spec) -> list[Diagnostic]:
    """Run every rule that applies to the spec, and return all findings."""
    # core/build.py imports this package before it writes the index, so the index is imported in the function.
    from xpc.compiler.rules.core.index import MODULES

    found = [one for module, applies in MODULES if applies(spec) for rule in rules(module) for one in rule.run(spec)]
    if spec.wrong:
        # drop findings about a setting whose value is wrong: they would be about its default
        few = {code: reads if len(reads) < MANY else CHOSEN & {*reads} for code, (_, reads) in codes().items()}
        found = [one for one in found if one.code in KEYS or spec.wrong.isdisjoint(few[one.code])]
    if "train" in spec.wrong:
        read, left = codes(), {path for path in USUALLY_ELSEWHERE if not spec.written(path)}
        found = [one for one in found if one.severity == ERROR and left.isdisjoint(read[one.code][1])]
    if any(one.parts for one in spec.sources):
        from xpc.compiler.spec.folders import fewer

        return fewer(found)
    return found


def relevant(found: list[Diagnostic]) -> list[Diagnostic]:
    """Drop notes about assumed values if the spec has syntax errors or wrong names: such a value may be stated in a
    line that could not be read.
    """
    if any(one.severity == ERROR and one.code < FIRST_RULE for one in found):
        return [one for one in found if one.code != ASSUMED]
    return found


def codes() -> dict[str, tuple[str, list[str]]]:
    """Maps each code to its rule's module, and to the settings that the rule reads. Both come from `rules.json`, so
    that no rule is imported.
    """
    table = read_json(__file__, "rules.json")
    return {code: (module, reads) for module, found in table.items() for code, reads in found.items()}


def every() -> tuple[Rule, ...]:
    """Import every module of rules, and return all rules, for `xpc explain`, the reference pages and the tests."""
    from xpc.compiler.rules.core.index import MODULES

    return tuple(rule for module, _ in MODULES for rule in rules(module))
