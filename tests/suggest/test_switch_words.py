"""A word follows a boolean setting, such as `off` in `packing off`. The message says what the word means, and the edit
writes the setting with this meaning.
"""

from __future__ import annotations

import pytest
from compile_support import checked

from xpc.compiler.language import schema
from xpc.compiler.language.expand.missing_equals import OFF
from xpc.compiler.language.kinds import FLAG
from xpc.grammar.diagnostic import Diagnostic

LINE = "train qwen2.5-3b on infinity-instruct"
CLAUSES = {name for name in schema.CLAUSES if name not in schema.BY_PATH}
SWITCHES = [row for row in schema.TABLE if row.kind is FLAG and row.name not in CLAUSES]
ELSEWHERE = ("lora", "freeze", "save", "method")
INSIDE = [
    row for row in SWITCHES if row.path.count(".") == 1 and row.clause not in ELSEWHERE and row.doc[:5] != "never"
]
HEADS = {"strategy": "strategy zero2", "precision": "precision bf16", "launch": "launch slurm"}


def findings(text: str) -> list[Diagnostic]:
    return [one for one in checked(text).problems if one.code in ("XP101", "XP102", "XP103", "XP104", "XP106", "XP110")]


def mended(text: str) -> str:
    (found,) = findings(text)
    assert "is a switch" in found.message
    (edit,) = found.edits
    return text[: edit.span.start] + edit.text + text[edit.span.end :]


@pytest.mark.parametrize("row", INSIDE, ids=lambda row: row.path)
def test_off_behind_a_switch_of_a_clause_becomes_false(row) -> None:
    head = HEADS.get(row.clause, row.clause)
    text = f"xpc 1\n{LINE}\n{head} {row.name} off\n"
    again = mended(text)
    assert again.endswith(f"{head} {row.name}=false\n")
    assert findings(again) == []
    assert checked(again).spec is None or not checked(again).spec.values[row.path].value


@pytest.mark.parametrize(
    "name", ["lora", "qlora", "oft", "vera", "loha", "miss", "freeze", "packing", "liger", "checkpointing", "hub"]
)
@pytest.mark.parametrize("form", ["xpc 1\n{line}\n{name} off\n", "{line} with {name} off gbs=64\n"])
def test_off_behind_a_switch_that_stands_alone(name, form) -> None:
    text = form.format(line=LINE, name=name)
    again = mended(text)
    assert f"{name}=false" in again
    assert findings(again) == []
    assert "offload" not in (findings(text)[0].help or "")


@pytest.mark.parametrize("word", [*OFF, "yes", "true", "enabled"])
def test_every_word_behind_a_switch_becomes_its_value(word) -> None:
    again = mended(f"xpc 1\n{LINE}\nmemory liger {word}\n")
    assert again.endswith("memory liger=false\n" if word in OFF else "memory liger\n")


@pytest.mark.parametrize("line", ["lora false", "lora true", "track none", "freeze false", "strategy offload=none"])
def test_what_is_legal_stays(line) -> None:
    assert not [one for one in findings(f"xpc 1\n{LINE}\n{line}\n") if "switch" in one.message]


def test_a_value_of_another_clause_is_no_switch() -> None:
    assert "every = never" in (findings(f"xpc 1\n{LINE}\neval off\n")[0].help or "")
