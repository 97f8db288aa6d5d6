"""The facts of each stack have exactly the names and types of the fields in the class `Facts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from xpc.compiler import stacks
from xpc.compiler.stacks import facts
from xpc.compiler.stacks.facts import Facts

KNOWN = get_type_hints(Facts, {**vars(facts), "Literal": Literal})


def fits(value: object, kind: Any) -> bool:
    """Whether a value has the annotated type. The elements of a collection are checked one by one."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is Mapping:
        key, item = get_args(kind)
        return isinstance(value, dict) and all(fits(one, key) and fits(two, item) for one, two in value.items())
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        if not isinstance(value, tuple) or (kinds[-1] is not ... and len(kinds) != len(value)):
            return False
        return all(fits(one, kinds[0] if kinds[-1] is ... else kinds[index]) for index, one in enumerate(value))
    return type(value) is kind


@pytest.mark.parametrize("name", stacks.names())
def test_every_fact_is_stated_and_of_its_type(name: str) -> None:
    facts = vars(stacks.load(name).facts)
    assert sorted(facts) == sorted(KNOWN)
    assert [one for one, value in facts.items() if not fits(value, KNOWN[one])] == []


def test_what_the_types_refuse() -> None:
    assert not fits(1, bool)
    assert not fits(("a", 1), tuple[str, ...])
    assert not fits((7,), tuple[int, int])
    assert not fits({"a": ["b"]}, Mapping[str, tuple[str, ...]])
    assert not fits("both", Literal["trl", "vllm"])


def test_facts_cannot_be_changed() -> None:
    facts = stacks.load(stacks.DEFAULT).facts
    with pytest.raises(AttributeError, match="read only"):
        facts.fsdp2 = False
