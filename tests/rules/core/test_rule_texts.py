"""The docstring of a rule has four parts, in the order of ruff's: what it checks, why, what happens, the source."""

import pytest

from xpc.compiler.explain.texts import explain
from xpc.compiler.rules import every
from xpc.compiler.rules.core.rule import PARTS, Rule

RULES = every()
EACH = pytest.mark.parametrize("rule", RULES, ids=[rule.code for rule in RULES])


@EACH
def test_a_docstring_has_four_parts(rule: Rule) -> None:
    summary, *others = rule.text.split("\n\n")
    assert len(others) == len(PARTS), rule.text
    assert not summary.startswith(PARTS)
    for part, lead in zip(others, PARTS, strict=True):
        assert part.startswith(lead)
        assert len(part.split()) > len(lead.split())
    assert all(part.endswith((".", '".')) for part in (summary, *others)), rule.text


@EACH
def test_explain_shows_the_example_between_what_happens_and_the_source(rule: Rule) -> None:
    text = explain(rule.code)
    assert text is not None
    leads = [*PARTS[:-1], "Example, rejected:", "Accepted:", PARTS[-1]]
    places = [text.index(f"\n\n{lead.strip()}") for lead in leads]
    assert places == sorted(places)
