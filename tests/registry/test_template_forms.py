"""The committed table of the kinds of rows that built-in templates write is correct."""

from __future__ import annotations

import json

import pytest
import template_forms

from xpc.compiler.registry import chat_templates


@pytest.mark.slow  # imports transformers
def test_the_table_is_rendered() -> None:
    pytest.importorskip("transformers")
    with open(template_forms.PLACE, encoding="utf-8") as file:
        assert file.read() == template_forms.table()


def test_templates_that_take_no_system_prompt_are_those_of_the_table() -> None:
    with open(template_forms.PLACE, encoding="utf-8") as file:
        forms = json.load(file)
    refusing = sorted(name for name, one in forms.items() if "system" in one["refused"])
    assert refusing == sorted(chat_templates.NO_SYSTEM)
