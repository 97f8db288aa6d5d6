"""Every output format can render every text and every span, and never writes a control character of the text."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_render_machine import check_run

from xpc.compiler.render import FORMATS, render
from xpc.grammar.diagnostic import Diagnostic, Edit, Label
from xpc.grammar.source import Source, Span

pytestmark = pytest.mark.slow

# Any code point, including surrogates. Code points that are dangerous in a terminal are frequent.
TEXT = st.text(
    st.characters(exclude_categories=()) | st.sampled_from("\n\r\t\0\x1b\x7f\x85\x9b\u202e\u2066\u2028\ud800 %:,{"),
    max_size=40,
)
LONG = st.builds(lambda piece, n: piece * n, TEXT, st.sampled_from([1, 1, 1, 50]))
SPANS = st.builds(Span, st.integers(-3, 60), st.integers(-3, 3000))
LABELS = st.builds(Label, st.builds(Source, TEXT, LONG), SPANS, TEXT)
DIAGNOSTICS = st.builds(
    Diagnostic, TEXT, TEXT, st.sampled_from(["error", "warning", "note"]), LONG, st.none() | LABELS,
    st.lists(LABELS, max_size=2).map(tuple), st.none() | LONG,
    st.lists(st.builds(Edit, SPANS, TEXT), max_size=2).map(tuple),
)  # fmt: skip
FOUND = st.lists(DIAGNOSTICS, max_size=3)


@given(FOUND, st.sampled_from(FORMATS))
@settings(max_examples=150)
def test_any_text_renders_as_printable_lines(found: list[Diagnostic], format: str) -> None:
    shown = render(found, format)
    assert all(line.isprintable() for line in shown.split("\n"))
    shown.encode()
    assert shown == "" or shown.endswith("\n")
    assert shown == render([*found, *found], format)


@given(FOUND)
@settings(max_examples=100)
def test_lines_count_what_was_found(found: list[Diagnostic]) -> None:
    objects = json.loads(render(found, "json"))
    assert len(render(found, "concise").splitlines()) == len(objects)
    assert len(render(found, "github").splitlines()) == len(objects)
    (run,) = json.loads(render(found, "sarif"))["runs"]
    check_run(run)
    assert len(run["results"]) == len(objects)


@given(LABELS)
@settings(max_examples=100)
def test_there_is_always_a_caret_and_it_never_passes_the_line(label: Label) -> None:
    lines = render([Diagnostic("XP000", "x", "error", "m", label)], "full").split("\n")
    marks = lines[4][lines[4].index("|") + 2 :].split("^")
    assert len(marks) >= 2
    # A tab or a wide character can take several columns, and an escaped character takes one column for each letter of
    # its escape. Spaces at the end of a line are not visible, but the carets below can mark them.
    blank = sum(label.source.text.count(one) for one in " \t")
    assert len(lines[4]) <= 2 * len(lines[3]) + len(label.text) * 8 + 8 + 4 * blank
