"""For hostile bytes and texts, the parser quickly reports a diagnostic with a location. It never raises an
exception.
"""

import pytest

from xpc.grammar.parse import parse
from xpc.grammar.read import decode
from xpc.grammar.source import Source


def locations(source, diagnostics):
    return [(d.code, *source.position(d.primary.span.start)) for d in diagnostics]


def read(data):
    source, diagnostics = decode(data, "test.xp")
    return source, locations(source, diagnostics), locations(source, parse(source)[1])


def test_bom_and_line_ends():
    source, bad, syntax = read(b"\xef\xbb\xbfxpc 1\r\nseed 1\rnodes 2\n")
    assert source.text == "xpc 1\nseed 1\nnodes 2\n"
    assert (bad, syntax) == ([], [])
    assert len(parse(source)[0].statements) == 2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a = 1\nb\x00c = 2\n", [("XP002", 2, 2)]),
        (b"a = \x1b[31m1\n", [("XP002", 1, 5)]),
        (b"a\x0cb\n", [("XP002", 1, 2)]),
        ("# a\u2028b\n".encode(), [("XP002", 1, 4)]),
        ('a = "x\u202ey"\n'.encode(), [("XP003", 1, 7)]),
        ("# \u2066 \u200f\n\u061c".encode(), [("XP003", 1, 3), ("XP003", 1, 5), ("XP003", 2, 1)]),
        (b"a = 1\n# \xff\xfe and \xc3\n", [("XP001", 2, 3), ("XP001", 2, 10)]),
        (b"\xed\xa0\x80", [("XP001", 1, 1)]),
    ],
)
def test_characters_are_reported_once(data, expected):
    source, bad, syntax = read(data)
    assert bad == expected
    assert [each for each in syntax if each[0] in ("XP001", "XP002", "XP003", "XP014")] == []
    assert source.text.isprintable() or "\n" in source.text


def test_texts_that_were_never_decoded_are_checked_too():
    source = Source("t.xp", "a\x00 = 1\n# \u202e\n")
    assert locations(source, parse(source)[1]) == [("XP002", 1, 2), ("XP003", 2, 3)]


def test_tabs_are_fine():
    assert read(b"\ta\t=\t1\t# x\ty\n")[1:] == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a" * 1_000_000, "XP004"),
        ("a = 1\n" * 200_000, "XP004"),
        ("a {\n" * 10_000 + "}\n" * 10_000, "XP005"),
        ("a = " + "[" * 10_000, "XP005"),
        ("f(" * 10_000, "XP005"),
        ('"' + "\\" * 60_000, "XP010"),
        ("a = " + "9" * 400, "XP042"),
        ("= " * 30_000, "XP025"),
        ("}" * 60_000, "XP013"),
        ("a = [" + "1, " * 20_000, "XP012"),
        ("a = = 1\n" * 8_000, "XP021"),
        ("a {\n b = [\n f(\n" * 10, "XP012"),
        ("[\n{" * 30, "XP012"),
        ("a b\n" * 16_000 + "= 1", "XP025"),
        ("\n" * 60_000 + "=", "XP025"),
        (" " * 60_000 + "=", "XP025"),
        ("\x00" * 60_000, "XP002"),
        ('"\n' * 30_000, "XP010"),
    ],
    ids=lambda value: repr(value[:12]),
)
def test_big_and_deep_texts_are_answered(text, code):
    _, diagnostics = parse(Source("t.xp", text))
    assert code in {diagnostic.code for diagnostic in diagnostics}
    assert len(diagnostics) <= 21


@pytest.mark.slow
def test_a_megabyte_of_bad_bytes_has_few_findings():
    source, diagnostics = decode(b"\xff\n" * 500_000, "t.xp")
    assert len(source.text) == 1_000_000
    assert len(diagnostics) == 21


def test_depth_limit_is_64():
    deep = "a {\n" * 64 + "}\n" * 64
    assert parse(Source("t.xp", deep))[1] == ()
    assert [d.code for d in parse(Source("t.xp", "a {\n" + deep + "}\n"))[1]] == ["XP005"]
