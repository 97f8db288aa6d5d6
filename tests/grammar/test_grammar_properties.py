"""For any text, the parser raises no exception, reports only locations inside the text, and reports each part of the
text that it has skipped.
"""

import os

import pytest
from grammar_trees import meaning
from hypothesis import example, given, settings
from hypothesis import strategies as st

from xpc.grammar.codes import CODES
from xpc.grammar.format import format_file
from xpc.grammar.parse import parse
from xpc.grammar.read import decode
from xpc.grammar.source import Source

EXAMPLES = os.path.join(os.path.dirname(__file__), "examples")
TEXTS = [open(os.path.join(EXAMPLES, name), encoding="utf-8").read() for name in sorted(os.listdir(EXAMPLES))]  # noqa: SIM115
PIECES = [
    *"{}[]()=,:@/#\"'\\\n\t %;-+.xé\x00\u202e\u2028",
    *(
        "train ",
        " on ",
        " for ",
        " with ",
        "xpc 1\n",
        'extends "a"\n',
        "8x ",
        " 8 x ",
        "1e999",
        '"a"',
        "a {\n",
        "a { b = 1, ",
        "b, c }",
        "\n}\n",
        "9" * 70,
    ),
]
soup = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@st.composite
def broken_specs(draw):
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["", *PIECES])) + text[at + draw(st.integers(0, 12)) :]
    return text


def holds(text):
    source = Source("t.xp", text)
    file, diagnostics = parse(source)
    assert file.source is source
    for diagnostic in diagnostics:
        assert CODES[diagnostic.code].slug == diagnostic.slug
        assert diagnostic.message
        assert "\n" not in diagnostic.message
        for label in (diagnostic.primary, *diagnostic.related):
            assert 0 <= label.span.start <= label.span.end <= len(text)
            source.position(label.span.start)
        for edit in diagnostic.edits:
            assert 0 <= edit.span.start <= edit.span.end <= len(text)
    starts = [diagnostic.primary.span.start for diagnostic in diagnostics]
    assert starts == sorted(starts)
    if not diagnostics:
        once = format_file(file)
        again, none = parse(Source("t.xp", once))
        assert none == ()
        assert meaning(again) == meaning(file)
        assert format_file(again) == once
        assert len(again.comments) == len(file.comments)


@pytest.mark.slow
@given(st.text(max_size=60))
def test_any_text_is_parsed_or_reported(text):
    holds(text)


@given(soup)
def test_any_words_of_the_language_are_parsed_or_reported(text):
    holds(text)


@settings(max_examples=60)
@given(broken_specs())
@example("{{\u2028[")  # after the last character, the scanner still adds the ends of open blocks
def test_broken_specs_are_reported(text):
    holds(text)


@given(st.binary(max_size=60))
@example(b"\xfe\xff")  # only a UTF-16 byte order mark, so the one possible location is the beginning
def test_any_bytes_are_decoded_and_reported(data):
    source, diagnostics = decode(data, "t.xp")
    for diagnostic in diagnostics:
        assert 0 <= diagnostic.primary.span.start < max(1, len(source.text))
    holds(source.text)


@pytest.mark.slow
@settings(max_examples=3000)
@given(soup | broken_specs())
def test_many_broken_specs_are_reported(text):
    holds(text)
