"""The docstring of each rule has four parts in this order: what the rule checks, why that is bad, what happens without
the rule, and the source.
"""

from xpc.compiler.explain.texts import explain
from xpc.compiler.rules import every
from xpc.compiler.rules.core.rule import PARTS, Rule


def fault(rule: Rule) -> str:
    """What is wrong with a docstring; "" if it has all four parts in the right order."""
    summary, *others = rule.text.split("\n\n")
    if len(others) != len(PARTS) or summary.startswith(PARTS):
        return f"{len(others)} paragraphs after the summary {summary!r}"
    for part, lead in zip(others, PARTS, strict=True):
        if not part.startswith(lead) or len(part.split()) <= len(lead.split()):
            return f"{lead.strip()!r} does not begin, or is all of, {part!r}"
    return next((f"no full stop: {part!r}" for part in (summary, *others) if not part.endswith((".", '".'))), "")


def order(rule: Rule) -> list[int]:
    """The position of each part in a rule's docstring. The position is -1 if the part is missing."""
    text = explain(rule.code) or ""
    leads = [*PARTS[:-1], "Example, rejected:", "Accepted:", PARTS[-1]]
    return [text.find(f"\n\n{lead.strip()}") for lead in leads]


def test_a_docstring_has_four_parts() -> None:
    assert {rule.code: why for rule in every() if (why := fault(rule))} == {}


def test_explain_shows_the_example_between_what_happens_and_the_source() -> None:
    locations = {rule.code: order(rule) for rule in every()}
    assert len(locations) > 400
    assert {code: found for code, found in locations.items() if -1 in found or found != sorted(found)} == {}
