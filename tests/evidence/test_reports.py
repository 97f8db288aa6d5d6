"""Every public report of a problem states what xpc does about the problem, and xpc does this today with the report's
spec.
"""

import os
import re

from compile_support import REPOSITORY, checked_once, placed, read, shown
from reports import GROUPS, MENDED, OPEN, OUTCOMES, REFUSED, RIGHT, UNSAYABLE, WARNED, page, reports

from xpc.grammar.diagnostic import ERROR

NEEDS = {REFUSED: ("codes", "spec"), WARNED: ("codes",), MENDED: ("test",), RIGHT: ("test",), UNSAYABLE: ("why",),
         OPEN: ("why", "spec")}  # fmt: skip
"""Maps each outcome, such as "refused", to the keys that an entry of reports.toml with this outcome must have."""


def test_reports_are_complete_and_none_is_undecided():
    for one in reports():
        assert one.now in OUTCOMES, one.what
        assert one.group in GROUPS, one.what
        assert all(getattr(one, name) for name in NEEDS[one.now]), one.what
        assert one.spec if one.now == WARNED and one.by == "check" else True, one.what
        assert one.test if one.by == "preview" else True, one.what
        assert one.what.endswith("."), one.what
        assert all(re.fullmatch(r"[\w-]+/[\w.-]+#\d+", thread) for thread in one.threads), one.what
        assert all(one.threads.values()), one.what
    threads = [thread for one in reports() for thread in one.threads]
    assert len(threads) == len(set(threads))
    assert len(threads) >= 200


def test_the_specs_of_reports_do_what_the_table_says(tmp_path):
    for one in (each for each in reports() if each.spec):
        found = checked_once(one.text, placed(one.files, lambda: tmp_path))
        errors = {problem.code for problem in found.problems if problem.severity == ERROR}
        others = {problem.code for problem in found.problems} - errors
        reported = f"{one.what}\n{shown(found)}"
        assert errors == (set(one.codes) if one.now == REFUSED else set()), reported
        assert one.now != WARNED or set(one.codes) <= others, reported


def test_the_tests_that_show_a_report_exist():
    for one in (each for each in reports() if each.test):
        path, _, name = one.test.partition("::")
        with open(os.path.join(REPOSITORY, path), encoding="utf-8") as handle:
            assert f"def {name}(" in handle.read(), one.test


def test_the_page_of_reports_is_fresh():
    assert read("docs", "reports.md") == page(), "`make docs` rewrites it"
