"""For every setting: if its name is misspelt, the spec after the suggested edit means the same as the spec with the
correct name.
"""

from __future__ import annotations

import pytest
from compile_support import checked, edited
from test_unknown_names import HEAD, stated

from xpc.compiler.language import schema
from xpc.compiler.language.kinds import BLOCK, FLAG
from xpc.compiler.suggest.known_names import NEVER_LEGAL
from xpc.compiler.suggest.legal import example
from xpc.compiler.suggest.typed_form import typed

ROWS = [
    row for row in schema.TABLE
    if not (row.kind is BLOCK or row.path.startswith("train.") or row.path in NEVER_LEGAL)
]  # fmt: skip


def typos(name: str) -> list[str]:
    """Typos of a name: letters are swapped, one letter is missing or doubled, or the separators or the case differ."""
    middle = len(name) // 2
    swapped = name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :]
    others = (swapped, name[:-1], name + name[-1], name[:middle] + name[middle + 1 :], name.title())
    found = [*others, name.replace("_", "-"), name.replace("_", "")]
    legal = {*schema.CLAUSES, *schema.bare_choices(), *schema.outer_names(), *(row.name for row in schema.TABLE)}
    return [one for one in dict.fromkeys(found) if one not in legal and len(one) > 2]


AMBIGUOUS = ("loa",)
"""Typos that are one letter away from two settings. For `loa`, these are `lora`, which is suggested, and `loha`."""


def wrong_edits(row: schema.Setting) -> list[str]:
    """Suggested edits for misspelt forms of a setting, if the edited spec means something else than the correctly spelt
    form.
    """
    value = None if row.kind is FLAG else example(row)
    form, value_text = typed(row, value), "" if value is None else value
    at = form.rfind(f"{row.name}={value_text}" if value_text else row.name)
    if at < 0 or (row.path == "hardware"):
        return []
    right = f"{HEAD}{form}\n"
    out = []
    for name in typos(row.name):
        if name in AMBIGUOUS:
            continue
        wrong = f"{HEAD}{form[:at]}{name}{form[at + len(row.name) :]}\n"
        for found in checked(wrong).problems:
            if found.code not in ("XP101", "XP102") or not found.edits:
                continue
            after = edited(wrong, found)
            errors = [one.code for one in checked(after).problems if one.severity == "error" and one.code < "XP125"]
            if not errors and stated(after) != stated(right):
                out.append(f"{wrong!r} -> {after!r}")
    return out


@pytest.mark.slow
def test_an_edit_for_a_misspelt_setting_states_the_setting():
    wrong = [one for row in ROWS for one in wrong_edits(row)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_an_edit_for_another_name_of_a_setting_keeps_its_value():
    """A user may type a setting under its name in the trainer, with a legal value. The edit then writes our name with
    the same value, or there is no edit.
    """
    wrong = []
    for row in ROWS:
        if row.kind is FLAG or len(row.args) != 1 or row.path in ("hardware", "strategy", "precision") or row.head:
            continue
        written = f"{HEAD}{row.args[0]}={example(row)}\n"
        for found in checked(written).problems:
            if found.code == "XP101" and found.edits:
                after = edited(written, found)
                if stated(after) != stated(f"{HEAD}{typed(row, example(row))}\n"):
                    wrong.append(f"{written!r} -> {after!r}")
    assert not wrong, "\n".join(wrong)
