"""The server converts text offsets to editor positions and back, also with CRLF line ends, lone surrogates, or no line
end at the end of the file.
"""

from __future__ import annotations

import pytest

from xpc.compiler.language_server.positions import UNITS, as_source, offset, position

TEXTS = {
    "an empty file": "",
    "one line": "train a",
    "line feeds": "a\n\nb c\n",
    "Windows": "a\r\n\r\nb c\r\n",
    "old Macs": "a\r\rb c\r",
    "line ends of Python alone": "# a\x0c b\u2028 c\x85 d\nb c",
    "two units": "# \U0001f642 \u00fc\nsave \U0001f642\n",
    "half a character": "save \ud83d\nb",
}


@pytest.mark.parametrize("encoding", UNITS)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_offsets_and_positions_round_trip(text: str, encoding: str) -> None:
    source, units = as_source(text), UNITS[encoding]
    for at in range(len(source.text) + 1):
        line, character = position(source, at, units)
        assert line == source.text[:at].count("\n")
        assert offset(source, line, character, units) == at


def test_units_depend_on_the_encoding() -> None:
    source = as_source("a\n\u00fc\U0001f642 b")
    assert [position(source, 5, units) for units in UNITS.values()] == [(1, 7), (1, 4), (1, 3)]


def test_position_after_the_end_is_the_end() -> None:
    source = as_source("a b\nc")
    assert offset(source, 0, 99, len) == 3
    assert offset(source, 99, 0, len) == len(source.text)
