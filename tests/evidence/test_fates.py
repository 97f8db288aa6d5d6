"""Every row of the rule table is true: the codes that it names exist, and the case that it names gets one of these
codes.
"""

import os
import re

import fate as fates
import pytest
from compile_support import checked_once, placed, put, shown
from evidence import proofs
from rule_cases import CASES

from xpc.compiler.language.codes import CODES, explanation
from xpc.compiler.rules import every

HERE = os.path.dirname(os.path.abspath(__file__))
FATES, WRONG = fates.fates()
KNOWN = {**{code: explanation(code) for code in CODES}, **{rule.code: rule.explanation for rule in every()}}
TITLES = {case.title: case for case in CASES}
IMPLEMENTED = [fate for fate in FATES.values() if fate.kind == fates.IMPLEMENTED]


def of(kind: str) -> list[str]:
    return [row for row, fate in FATES.items() if fate.kind == kind]


def test_files_are_well_formed():
    assert not WRONG


def test_the_rows_of_a_group_are_numbered_without_a_gap():
    for letter in fates.GROUPS:
        group = [row for row in FATES if row[0] == letter]
        assert group == [f"{letter}{number:02}" for number in range(1, len(group) + 1)]


def test_enough_is_checked_and_enough_cannot_be_written():
    assert len(of(fates.IMPLEMENTED)) >= 200
    assert len(of(fates.UNWRITABLE)) >= 60


def test_reasons_are_sentences():
    assert not [fate.row for fate in FATES.values() if fate.kind != fates.IMPLEMENTED and len(fate.why.split()) < 4]


@pytest.mark.parametrize("group", sorted({fate.row[0] for fate in IMPLEMENTED}))
def test_an_implemented_row_is_refused_by_a_stack(group: str, tmp_path_factory):
    for fate in (one for one in IMPLEMENTED if one.row[0] == group):
        assert not set(fate.codes) - set(KNOWN), fate.row
        case = TITLES.get(fate.case)
        assert case is not None, f"{fate.row}: there is no case {fate.case}"
        found = checked_once(case.rejected, placed(case.files, lambda case=case: tmp_path_factory.mktemp("fate")))
        assert {one.code for one in found.problems} & set(fate.codes), f"{fate.row}: {shown(found)}"


def test_every_rule_answers_a_row():
    assert not {rule.code for rule in every()} - {code for fate in IMPLEMENTED for code in fate.codes}


def test_every_proof_is_of_a_row():
    assert not {row for row in proofs() if row not in FATES}


def test_an_implemented_row_is_proven_or_says_what_that_needs():
    assert not [fate.row for fate in IMPLEMENTED if bool(fate.unproven) == (fate.row in proofs())]
    assert len([fate.row for fate in IMPLEMENTED if any(not one.needs for one in proofs().get(fate.row, ()))]) >= 120


def sentences(text: str) -> int:
    return len(re.findall(r"[.!?](?:\s|$)", text.strip() + " "))


def test_a_rule_explains_itself_and_has_a_case():
    rules = {rule.code for rule in every()}
    assert not {code: KNOWN[code] for code in rules if sentences(KNOWN[code]) < 2}
    assert not rules - {case.code for case in CASES}


def test_codes_of_cases_exist():
    assert not {case.code for case in CASES} - set(KNOWN)


def test_the_readers_findings(tmp_path, monkeypatch):
    put(
        tmp_path,
        {
            "P.toml": '[P01]\nname = "a"\nfate = "implemented"\ncodes = []\nwhy = "x"\n'
            '[A01]\nfate = "refused"\n[P02]\nname = "b"\nfate = "gone"\n[P03]\nname = "c"\nfate = "refused"\n',
            "A.toml": "[A01",
        },
    )
    monkeypatch.setattr(fates, "FOLDER", str(tmp_path))
    found, wrong = fates.fates()
    told = "\n".join(wrong)
    assert not found
    for part in (
        "P01: case is no text", "P01: codes is no list", "P01: why does not",
        "A01: no row of P.toml", "P02: fate is 'gone'", "P03: why is no text", "A.toml: ", "X.toml is not there",
    ):  # fmt: skip
        assert part in told, part
