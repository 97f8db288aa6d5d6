"""The compiler splits a chat template into texts and blocks exactly as jinja does."""

from __future__ import annotations

import pytest

from xpc.compiler.rules.core.template_blocks import code_of, parts, without_comments


def test_a_template_is_divided_into_its_parts():
    text = "a{# {{ x }} #}{{ m['role'] }}b{%- if \"%}\" in m -%}c{% endif %}"
    assert list(parts(text)) == [
        ("", "a", "a"),
        ("", "", ""),
        ("{{", "{{ m['role'] }}", " m[] "),
        ("", "b", "b"),
        ("{%", '{%- if "%}" in m -%}', "- if  in m -"),
        ("", "c", "c"),
        ("{%", "{% endif %}", " endif "),
        ("", "", ""),
    ]
    assert without_comments(text) == text.replace("{# {{ x }} #}", "")
    assert code_of(text) == " m[] \n- if  in m -\n endif "


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (r"{{ 'a\'b' ~ c }}", "  ~ c "),  # An escaped quote does not end the text.
        (r"{{ 'a\\' ~ c }}", "  ~ c "),  # A quote after an escaped backslash ends the text.
        ("{{ '}}' }}{{ d }}", "  \n d "),
        ("{{ 'it' }} it's {{ d }}", "  \n d "),  # outside of blocks, a quotation mark does not begin a string
        ("{{ 'open }} {{ d }}", ""),
        ("{# open {{ d }}", ""),
    ],
)
def test_code_has_no_quoted_texts(text: str, code: str):
    assert code_of(text) == code
