"""A spec can say which name of a speaker stands for which role. The runtime and the compiler read rows with such names
in the same way.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from xpc.runtime.core import rows
from xpc.runtime.features.messages.turn_names import with_roles
from xpc.runtime.features.rows import chat, named_roles, prompts

ROLES = {"guest": "user", "host": "assistant", "system": "assistant", "rules": "system"}
WHERE = {"columns": None, "path": "rows.jsonl", "id": None}


def read(shape: str, row: dict[str, Any], roles: dict[str, str] | None = None) -> dict[str, Any]:
    known = {"messages": chat, "conversations": rows, "preference": prompts}[shape]
    given = ROLES if roles is None else roles
    to_row = named_roles.NamedRoles().row_converter(SimpleNamespace(data={"roles": given}), known.to_row)
    return dict(to_row({**WHERE, "shape": shape}, row, 0))


def turns_of(turns: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(turn["role"], turn["content"]) for turn in turns]


def test_messages_say_the_roles_that_names_stand_for() -> None:
    turns = [{"role": "rules", "content": "a"}, {"role": "guest", "content": "b"}, {"role": "host", "content": "c"},
             {"role": "tool", "content": "d"}]  # fmt: skip
    found = read("messages", {"messages": turns, "tools": [{"role": "guest"}]})
    assert turns_of(found["messages"]) == [("system", "a"), ("user", "b"), ("assistant", "c"), ("tool", "d")]
    assert turns[0]["role"] == "rules"


def test_a_name_of_the_spec_goes_before_what_it_usually_means() -> None:
    turns = [{"from": "human", "value": "a"}, {"from": "system", "value": "b"}, {"from": "guest", "value": "c"}]
    found = read("conversations", {"conversations": turns})["messages"]
    assert turns_of(found) == [("user", "a"), ("assistant", "b"), ("user", "c")]


def test_answers_of_pairs_are_named_too() -> None:
    row = {"prompt": [{"role": "guest", "content": "a"}], "chosen": {"role": "host", "content": "b"},
           "rejected": [{"from": "host", "value": "c"}]}  # fmt: skip
    found = read("preference", row)
    assert turns_of(found["prompt"]) == [("user", "a")]
    assert [turns_of(found[key]) for key in ("chosen", "rejected")] == [[("assistant", "b")], [("assistant", "c")]]


@pytest.mark.parametrize("value", ["a text", 7, None, ["guest"], {"role": 4}, [{"role": None}], [{"from": ["guest"]}]])
def test_what_is_no_turn_stays_as_it_is(value: object) -> None:
    assert with_roles(value, ROLES) == value
