"""The output format `full`, which people read, has exactly the expected text and alignment, and no raw control
characters.
"""

import re
import subprocess
import sys

import pytest
from render_samples import EXAMPLE, assumed, conflict, divide, label, spelling

from xpc.compiler.render import render
from xpc.grammar.diagnostic import Diagnostic, Label
from xpc.grammar.source import Source, Span


def at(text: str, piece: str) -> list[str]:
    """Two lines as `full` prints them, without the gutter: the source line of `piece`, and the line of carets below
    it.
    """
    source = Source("a.xp", text)
    shown = render([Diagnostic("XP000", "x", "error", "m", label(source, piece))], "full").split("\n")
    return [line[4:] for line in shown[3:5]]


def test_the_example_of_the_language_page_is_rendered_exactly() -> None:
    assert render([divide()], "full") == EXAMPLE + "\n1 error\n"


def test_blocks_other_places_help_and_count() -> None:
    shown = """\
warning XP301 bf16-needs-ampere: V100 has no bf16
   --> two.xp:1:11
    |
  1 | precision bf16
    |           ^^^^ asked for here
   ::: two.xp:100:14
    |
100 | hardware 8 x v100-32gb
    |              ^^^^^^^^^ compute capability 7.0
help: precision fp32
      precision fp16

XP101 unknown-name: no setting or choice is called ligre
 --> v100.xp:1:72
  |
1 | train qwen2.5-3b on infinity-instruct with zero2 gbs=512 micro=11 bf16 ligre
  |                                                                        ^^^^^ unknown
help: liger

note XP701 assumed-hardware: compiled for 8 x h100-80gb

1 error, 1 warning, 1 note
"""
    assert render([assumed(), conflict(), spelling()], "full") == shown


def test_nothing_found_prints_nothing() -> None:
    assert render([], "full") == ""


@pytest.mark.parametrize(
    ("text", "piece", "line", "marks"),
    [
        ("\tgbs = 1", "gbs", "    gbs = 1", "    ^^^"),
        ("a\tgbs", "gbs", "a   gbs", "    ^^^"),
        ("名前 = gbs", "gbs", "名前 = gbs", "       ^^^"),
        ("名前 = gbs", "前", "名前 = gbs", "  ^^"),
        ("cafe\u0301 gbs", "gbs", "cafe\u0301 gbs", "     ^^^"),
        ("a\u202eb gbs", "gbs", "a<U+202E>b gbs", "           ^^^"),
        ("\x1b[31m gbs", "gbs", "<U+001B>[31m gbs", "             ^^^"),
        ("\ud800 gbs", "gbs", "<U+D800> gbs", "         ^^^"),
        ("a\u00a0gbs", "\u00a0", "a<U+00A0>gbs", " ^^^^^^^^"),
        ("batch {\n  gbs\n}", "{\n  gbs\n}", "batch {", "      ^"),
        ("", "", "", "^"),
        ("a\nb", "\n", "a", " ^"),
    ],
)
def test_carets_stand_under_the_span(text: str, piece: str, line: str, marks: str) -> None:
    assert at(text, piece) == [line, marks]


@pytest.mark.parametrize("before", [0, 50, 500_000, 1_000_000])
def test_a_megabyte_on_one_line_is_a_window(before: int) -> None:
    line, marks = at("x" * before + "HERE" + "y" * (1_000_000 - before), "HERE")
    assert len(line) < 220
    assert line[marks.index("^") : marks.rindex("^") + 1] == "HERE"
    assert line.startswith("...") == (before > 100)
    assert line.endswith("...") == (before < 900_000)


def test_a_megabyte_of_span_is_a_window_of_carets() -> None:
    line, marks = at("gbs = " + "9" * 1_000_000, "9" * 1_000_000)
    assert line.endswith("9...")
    assert len(marks) == len(line) - 3


def test_a_megabyte_in_a_message_is_cut() -> None:
    assert len(render([Diagnostic("XP000", "x", "error", "m" * 1_000_000)], "full")) < 3000


def test_names_and_messages_are_not_sent_raw() -> None:
    source = Source("a\n\x1b]0;x\x07.xp", "gbs")
    shown = render([Diagnostic("XP000", "x", "error", "bad \u202e name", label(source, "gbs", "\x9b2J"))], "full")
    assert " --> a\\n<U+001B>]0;x<U+0007>.xp:1:1\n" in shown
    assert shown.startswith("XP000 x: bad <U+202E> name\n")
    assert "^^^ <U+009B>2J\n" in shown


def test_findings_are_sorted_and_duplicates_dropped() -> None:
    one, two = Source("a.xp", "x y\nz\n"), Source("b.xp", "x")

    def finding(source: Source, piece: str, severity: str = "error") -> Diagnostic:
        return Diagnostic("XP000", "x", severity, "m", label(source, piece))

    again = Diagnostic("XP000", "x", "error", "m", Label(Source("a.xp", one.text), Span(2, 3)))
    found = [
        assumed(), finding(two, "x"), finding(one, "z"), finding(one, "y", "note"), finding(one, "y"), again,
        finding(one, "x"), finding(one, "x"),
    ]  # fmt: skip
    assert render(found, "concise").splitlines() == [
        "a.xp:1:1: error XP000 x: m",
        "a.xp:1:3: error XP000 x: m",
        "a.xp:2:1: error XP000 x: m",
        "a.xp:1:3: note XP000 x: m",
        "b.xp:1:1: error XP000 x: m",
        "note XP701 assumed-hardware: compiled for 8 x h100-80gb",
    ]


@pytest.mark.parametrize("format", ["full", "concise"])
def test_color_is_added_only_on_request(format: str) -> None:
    found = [divide(), conflict(), assumed()]
    plain, colored = render(found, format), render(found, format, color=True)
    assert "\x1b" not in plain
    assert "\x1b[1;31m" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


def test_an_unknown_format_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="'xml': one of full, concise"):
        render([], "xml")


def test_formats_are_imported_on_first_use() -> None:
    code = (
        "import sys; from xpc.compiler.render import render; assert 'json' not in sys.modules, 'json';"
        "from xpc.grammar.diagnostic import Diagnostic; render([Diagnostic('XP000', 'x', 'error', 'm')], 'full');"
        "assert not {'json', 'xpc.compiler.render.sarif', 'xpc.compiler.render.concise'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
