"""The same mistake can be written in several forms: a block on one line, a call, or nested keys. The suggested edit
keeps the form.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from compile_support import checked, codes, edited, of, placed, shown
from rule_cases import CASES

BLOCK = re.compile(r"\{\n((?:[^{}#\n]+\n)+?)[ \t]*\}")
LINE = re.compile(r"(?m)^([ \t]*)((?:extra )?[\w.]+(?: [\w.-]+)?) \{ ([^{}]*) \}$")
KEY = re.compile(r"(?m)^( *)(zero_optimization|fsdp_config|parallelism_config|data_types)\.([\w.]+) = (.*)$")


def on_one_line(text: str) -> str:
    """Write every block that has no comments on one line. Innermost blocks come first."""
    while (
        after := BLOCK.sub(lambda block: f"{{ {', '.join(map(str.strip, block[1].strip().split(chr(10))))} }}", text)
    ) != text:
        text = after
    return text


def as_calls(text: str) -> str:
    return LINE.sub(r"\1\2(\3)", on_one_line(text))


def nested(text: str) -> str:
    """Write dotted keys of DeepSpeed and accelerate as nested blocks: `a.b = 1` becomes `a { b = 1 }`."""
    return KEY.sub(r"\1\2 {\n\1  \3 = \4\n\1}", text)


def nested_on_one_line(text: str) -> str:
    return on_one_line(nested(text))


@pytest.mark.slow
@pytest.mark.parametrize(("form", "least"), [(on_one_line, 90), (as_calls, 90), (nested, 8), (nested_on_one_line, 90)])
def test_an_edit_fits_the_form_of_its_block(form: Callable[[str], str], least: int, tmp_path_factory):
    tried = 0
    for case in CASES:
        text = form(case.rejected)
        if text == case.rejected:
            continue
        root = placed(case.files, lambda: tmp_path_factory.mktemp("case"))
        found = checked(text, root)
        for one in of(found, case.code):
            if not one.edits or one.primary is None or one.primary.source.text != text:
                continue
            after = checked(edited(text, one), root)
            new = {code for code in codes(after) if code < "XP1" or code in ("XP101", "XP102", "XP104", "XP121")}
            assert not new - set(codes(found)), f"{case.title}\n{text}\n{shown(after)}"
            assert len(of(after, case.code)) < len(of(found, case.code)), f"{case.title}\n{text}\n{shown(after)}"
            tried += 1
    assert tried >= least
