"""Data that is generated from the rules is right: the codes, the settings that each rule reads, and the `WHEN` of each
module (a condition without which none of the module's rules can apply).
"""

import json
import re
from collections.abc import Mapping
from functools import cache

import pytest
from compile_support import placed
from rule_cases import CASES

from xpc.compiler.explain.texts import explain
from xpc.compiler.files.workspace import Workspace
from xpc.compiler.language.load import load
from xpc.compiler.resolve.experiment import resolve
from xpc.compiler.rules import codes, every, rules
from xpc.compiler.rules.core import build
from xpc.compiler.rules.core.index import MODULES
from xpc.compiler.rules.core.legality import error_codes
from xpc.compiler.spec import Spec
from xpc.grammar.read import decode

pytestmark = pytest.mark.slow


@cache
def declared() -> dict[str, set[str]]:
    """The settings that each rule reads, as `make docs` writes them; computed once, when a test needs them."""
    return {code: set(paths) for found in json.loads(build.table()).values() for code, paths in found.items()}


PRECONDITION = {
    "rules.adapters.lora", "rules.adapters.frozen", "rules.method.support", "rules.method.online",
    "rules.method.rewards", "rules.method.dpo", "rules.method.preference", "rules.saving.publishing",
    "rules.method.vllm", "rules.method.distill", "rules.method.kto", "rules.strategy.offload", "rules.method.sampling",
    "rules.optimizer.early_stopping", "rules.optimizer.muon", "rules.numerics.rope", "rules.numerics.float8",
    "rules.numerics.newer_files", "rules.strategy.experts",
}  # fmt: skip
"""Modules whose `WHEN` requires a method, an adapter, an optimizer, a family or fp8. Their rules rely on it."""


def allowed(module):
    """Whether the rules of a module may assume that the module's `WHEN` is true. Rules of launch engines may always
    assume this.
    """
    return module in PRECONDITION or module.startswith("engines.")


class Noted(Mapping):
    """The values of a spec. It records every path that is read by name. If a loop reads all values, nothing is
    recorded.
    """

    def __init__(self, values, requested):
        self.inner, self.requested = values, requested

    def __getitem__(self, path):
        self.requested.add(path)
        return self.inner[path]

    def __iter__(self):
        return iter(self.inner)

    def __len__(self):
        return len(self.inner)

    def items(self):
        return self.inner.items()

    def values(self):
        return self.inner.values()


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    """A list of pairs: a spec, and an empty set. There is one pair for each rejected or accepted text of the rules'
    cases, if a `Spec` can be made of the text. When a rule reads a setting of the spec, the set gets the path of the
    setting.
    """
    found = []
    for case in CASES:
        root = placed(case.files, lambda: tmp_path_factory.mktemp("rules"))
        for text in (case.rejected, case.accepted):
            workspace = Workspace(str(root))
            spec, _ = resolve(load(decode(text.encode(), "t.xp")[0], workspace), workspace, error_codes)
            if spec is not None:
                requested = set()
                found.append((Spec(**{**vars(spec), "values": Noted(spec.values, requested)}), requested))
    assert len(found) > 1.5 * len(CASES)
    return found


def test_index_and_table_are_fresh():
    for path, text in ((build.INDEX, build.index()), (build.TABLE, build.table())):
        with open(path, encoding="utf-8") as handle:
            assert handle.read() == text, "run: make docs"


def test_explain_lists_the_rules_of_a_setting():
    assert "  rules    XP201, " in explain("batch.gbs")
    assert {"XP684", "XP680"} <= set(re.findall(r"XP\d+", explain("method.vllm")))
    assert "XP860" not in explain("method.vllm")


def test_a_field_of_a_record_is_not_the_setting_of_its_name():
    """XP431 does not read the setting `hardware`, so it is not listed for this rule. The rule calls `evolve`, and
    `evolve` reads every field of the record `Spec`. One of these fields is also called `hardware`, but it is not the
    setting.
    """
    assert "hardware" not in codes()["XP431"][1]
    assert "hardware" in codes()["XP330"][1]


def test_the_codes_of_the_rules_are_known_without_their_modules():
    assert set(codes()) == {rule.code for rule in every()}
    assert len(codes()) == len(every())


def test_rule_reads_what_it_names_and_skipped_modules_have_no_finding(specs):
    undeclared, hidden = {}, {}
    for module, applies in MODULES:
        every = rules(module)
        for spec, requested in specs:
            applies_here = applies(spec)
            for rule in every:
                requested.clear()
                output = list(rule.run(spec)) if applies_here else _alone(rule, spec)
                if applies_here:
                    undeclared.setdefault(rule.code, set()).update(requested - declared()[rule.code])
                elif output:
                    hidden.setdefault(module, set()).add(rule.code)
    assert not {code: sorted(paths) for code, paths in undeclared.items() if paths}
    hidden = {module: sorted(codes) for module, codes in hidden.items() if not allowed(module)}
    assert not hidden, (
        f"check the condition of WHEN in these rules again, or list their module in PRECONDITION: {hidden}"
    )


def _alone(rule, spec):
    """The findings of a rule about a spec that the module's `WHEN` excludes, so that xpc does not run the rule. Empty
    if the rule raises an exception.
    """
    try:
        return list(rule.run(spec))
    except (AssertionError, KeyError, StopIteration, TypeError):
        return []


def test_a_code_has_one_rule(monkeypatch):
    (pairs,) = [one for one in build.modules() if one[0] == "rules.method.dpo"]
    monkeypatch.setattr(build, "modules", lambda: [pairs, pairs])
    with pytest.raises(ValueError, match="XP486 is ipo-averages-the-others"):
        build.table()
