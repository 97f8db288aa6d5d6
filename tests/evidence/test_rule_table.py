"""Every row of the rule table is right: the codes in the row exist, and the row's case gets one of these codes."""

import os
import re

import pytest
import rule_table as outcomes
from compile_support import checked_once, placed, put, shown
from evidence import proofs
from rule_cases import CASES

from xpc.compiler.language.codes import CODES, explanation
from xpc.compiler.rules import every

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))
OUTCOMES, WRONG = outcomes.outcomes()
KNOWN = {**{code: explanation(code) for code in CODES}, **{rule.code: rule.explanation for rule in every()}}
TITLES = {case.title: case for case in CASES}
IMPLEMENTED = [outcome for outcome in OUTCOMES.values() if outcome.kind == outcomes.IMPLEMENTED]


def of(kind: str) -> list[str]:
    return [row for row, outcome in OUTCOMES.items() if outcome.kind == kind]


def test_files_are_well_formed():
    assert not WRONG


def test_the_rows_of_a_group_are_numbered_without_a_gap():
    for letter in outcomes.GROUPS:
        group = [row for row in OUTCOMES if row[0] == letter]
        assert group == [f"{letter}{number:02}" for number in range(1, len(group) + 1)]


def test_enough_is_checked_and_enough_cannot_be_written():
    assert len(of(outcomes.IMPLEMENTED)) >= 200
    assert len(of(outcomes.UNWRITABLE)) >= 60


def test_reasons_are_sentences():
    assert not [
        outcome.row
        for outcome in OUTCOMES.values()
        if outcome.kind != outcomes.IMPLEMENTED and len(outcome.why.split()) < 4
    ]


@pytest.mark.parametrize("group", sorted({outcome.row[0] for outcome in IMPLEMENTED}))
def test_an_implemented_row_is_refused_by_a_stack(group: str, tmp_path_factory):
    for outcome in (one for one in IMPLEMENTED if one.row[0] == group):
        assert not set(outcome.codes) - set(KNOWN), outcome.row
        case = TITLES.get(outcome.case)
        assert case is not None, f"{outcome.row}: there is no case {outcome.case}"
        found = checked_once(case.rejected, placed(case.files, lambda case=case: tmp_path_factory.mktemp("outcome")))
        assert {one.code for one in found.problems} & set(outcome.codes), f"{outcome.row}: {shown(found)}"


def test_every_rule_answers_a_row():
    assert not {rule.code for rule in every()} - {code for outcome in IMPLEMENTED for code in outcome.codes}


def test_every_proof_is_of_a_row():
    assert not {row for row in proofs() if row not in OUTCOMES}


def test_an_implemented_row_is_proven_or_says_what_that_needs():
    assert not [outcome.row for outcome in IMPLEMENTED if bool(outcome.unproven) == (outcome.row in proofs())]
    assert (
        len([outcome.row for outcome in IMPLEMENTED if any(not one.needs for one in proofs().get(outcome.row, ()))])
        >= 120
    )


def sentences(text: str) -> int:
    return len(re.findall(r"[.!?](?:\s|$)", text.strip() + " "))


def test_a_rule_explains_itself_and_has_a_case():
    rules = {rule.code for rule in every()}
    assert not {code: KNOWN[code] for code in rules if sentences(KNOWN[code]) < 2}
    assert not rules - {case.code for case in CASES}


def test_codes_of_cases_exist():
    assert not {case.code for case in CASES} - set(KNOWN)


def test_the_reader_reports_each_mistake_of_a_row(tmp_path, monkeypatch):
    put(
        tmp_path,
        {
            "P.toml": '[P01]\nname = "a"\noutcome = "implemented"\ncodes = []\nwhy = "x"\n'
            '[A01]\noutcome = "refused"\n[P02]\nname = "b"\noutcome = "gone"\n[P03]\nname = "c"\noutcome = "refused"\n',
            "A.toml": "[A01",
        },
    )
    monkeypatch.setattr(outcomes, "FOLDER", str(tmp_path))
    found, wrong = outcomes.outcomes()
    reported = "\n".join(wrong)
    assert not found
    for part in (
        "P01: case is no text", "P01: codes is no list", "P01: why does not",
        "A01: no row of P.toml", "P02: outcome is 'gone'", "P03: why is no text", "A.toml: ", "X.toml is not there",
    ):  # fmt: skip
        assert part in reported, part
