"""Each rule on both sides: a spec that it rejects, and the nearest one that it lets through."""

from collections.abc import Callable

import pytest
from case_support import Case
from compile_support import checked, codes, edited, errors, of, put, shown
from rule_cases import CASES, SYNTAX
from typed_in import leaves_out, typed_in, way_out

from xpc.compiler.codes import CODES
from xpc.compiler.pipeline import Checked
from xpc.compiler.rules import every
from xpc.grammar.diagnostic import ERROR

EACH = pytest.mark.parametrize("case", CASES, ids=[case.title for case in CASES])


BESIDE = {"XP208"}
"""What a case of data may get too: it is written with a row or two, far fewer than a batch."""


Refused = Callable[[Case], tuple[str, Checked]]


@pytest.fixture(scope="session")
def refused(tmp_path_factory: pytest.TempPathFactory) -> Refused:
    """The folder of a case and what its rejected spec gives, checked once for all that look at it."""
    kept: dict[str, tuple[str, Checked]] = {}

    def look(case: Case) -> tuple[str, Checked]:
        if case.title not in kept:
            root = put(tmp_path_factory.mktemp("case"), case.files)
            kept[case.title] = root, checked(case.rejected, root)
        return kept[case.title]

    return look


def test_no_code_without_a_case():
    missing = {*CODES, *(rule.code for rule in every())} - {case.code for case in CASES}
    assert not missing


def test_titles_are_unique():
    assert len({case.title for case in CASES}) == len(CASES)


@EACH
def test_rejected_gives_exactly_its_code(case: Case, refused: Refused):
    _, found = refused(case)
    assert case.code in codes(found), shown(found)
    others = {one.code for one in found.problems if one.severity != "note"} - {case.code} - BESIDE
    assert not others, shown(found)


@EACH
def test_accepted_does_not_give_it(case: Case, refused: Refused):
    root, _ = refused(case)
    found = checked(case.accepted, root)
    assert not errors(found), shown(found)
    assert case.code not in codes(found), shown(found)


@EACH
def test_a_diagnostic_is_complete(case: Case, refused: Refused):
    for one in of(refused(case)[1], case.code):
        assert one.primary is not None
        assert one.message
        assert not one.message.endswith(".")
        assert one.help


@EACH
def test_an_edit_answers_its_diagnostic(case: Case, refused: Refused):
    root, found = refused(case)
    for one in of(found, case.code):
        if not one.edits:
            continue
        assert one.primary is not None
        after = checked(edited(one.primary.source.text, one), root)
        assert case.code not in codes(after), shown(after)
        if errors(found) in ([], [case.code]):
            assert after.spec is not None, shown(after)


NOT_TYPED = {
    "XP118": "whether the hub has the model is not known",
    "XP119": "what it names is the header's own word",
    "XP126": "another method trains on other rows",
    "XP126-packing": "another method trains on other rows",
    "XP120-sharding-strategy": "what was written is refused by the strategy's own rule, too: one node is one group",
    "XP444-of-zero2": "the other way out; zero3 needs the disk's folder beside it",
}
"""Codes and titles of errors whose help cannot be typed in by a program, each with the reason."""


@EACH
def test_what_a_help_says_to_write_compiles(case: Case, refused: Refused):
    root, found = refused(case)
    for one in of(found, case.code):
        if one.severity != ERROR or {case.code, case.title} & set(NOT_TYPED):
            continue
        if not (one.edits or way_out(one.help) or leaves_out(one.help)):
            continue
        after = typed_in(case.rejected, one)
        assert after is not None, f"no setting: {one.help}"
        again = checked(after, root)
        assert case.code not in errors(again) or len(of(found, case.code)) > 1, f"{one.help}\n{after}\n{shown(again)}"
        if len(errors(found)) == 1:
            assert again.spec is not None, f"{one.help}\n{after}\n{shown(again)}"


def test_what_cannot_be_typed_in_is_a_case():
    assert not set(NOT_TYPED) - {case.code for case in CASES} - {case.title for case in CASES}


def test_enough_diagnostics_carry_an_edit(refused: Refused):
    with_edit = {
        case.code
        for case in CASES
        for one in refused(case)[1].problems
        if one.edits and one.code == case.code and one.severity == ERROR
    }
    assert len(with_edit) >= 20, sorted(with_edit)


@pytest.mark.parametrize("case", SYNTAX, ids=[case.title for case in SYNTAX])
def test_an_edit_of_a_syntax_error_answers_it(case: Case):
    for one in of(checked(case.rejected), case.code):
        if one.edits and one.severity == ERROR:
            after = of(checked(edited(case.rejected, one)), case.code)
            assert len(after) < len(of(checked(case.rejected), case.code)), edited(case.rejected, one)
