"""Decode the bytes of a file, and report hidden characters: those that are invisible, or that change how the text
around them looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from xpc.grammar import codes
from xpc.grammar.diagnostic import ERROR, NOTE, Diagnostic, Label
from xpc.grammar.source import Source, Span

REPLACEMENT = "\ufffd"
# a pattern for forbidden characters: Unicode's category Cc except tab and newline, the two line separators, and
# characters that control the direction of text
_HIDDEN = re.compile(
    "[\udc80-\udcff]+|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_NAMES = {
    "\x00": "NUL",
    "\x0b": "vertical tab",
    "\x0c": "form feed",
    "\r": "carriage return",
    "\x1b": "escape",
    "\x7f": "delete",
    "\x85": "next line",
    "\u2028": "line separator",
    "\u2029": "paragraph separator",
}


MAX_ERRORS = 20
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""The byte order marks at the beginning of UTF-16 files. Older versions of PowerShell write such files with `>`, and
editors on Windows call their format "Unicode".
"""
_AS_UTF_8 = "save the file as UTF-8, for example with iconv -f utf-16 -t utf-8"


def hidden_characters(text: str) -> list[Span]:
    """The spans of forbidden characters, sorted. Several consecutive bytes that are not UTF-8 are one span."""
    return [Span(*match.span()) for match in _HIDDEN.finditer(text)]


def describe_hidden(source: Source, spans: Iterable[Span], text: str) -> tuple[Diagnostic, ...]:
    """Make diagnostics for the forbidden characters at `spans` in the original `text`. Of many such characters, only
    the first ones are reported.
    """
    found: list[Diagnostic] = []
    for span in spans:
        if len(found) == MAX_ERRORS:
            code, message = codes.TOO_MANY_ERRORS, "more characters of this kind follow"
            found.append(Diagnostic(code.code, code.slug, NOTE, message, Label(source, span)))
            break
        code, message, remedy = _describe(text[span.start : span.end])
        found.append(Diagnostic(code.code, code.slug, ERROR, message, Label(source, span), help=remedy))
    return tuple(found)


def _describe(hidden: str) -> tuple[codes.Code, str, str]:
    character = hidden[0]
    if "\udc80" <= character <= "\udcff":
        count = len(hidden)
        shown = " ".join(f"{ord(each) - 0xDC00:02X}" for each in hidden[:8]) + (" ..." if count > 8 else "")
        return codes.INVALID_UTF8, f"byte{'s' if count > 1 else ''} {shown}: not UTF-8", "save the file as UTF-8"
    point = f"U+{ord(character):04X}"
    remedy = "delete it: editors do not show it"
    if character in _BIDI:
        return codes.BIDI_CONTROL, f"bidirectional control character {point}", remedy
    known = f" ({_NAMES[character]})" if character in _NAMES else ""
    return codes.CONTROL_CHARACTER, f"control character {point}{known}", remedy


def decode(data: bytes, name: str) -> tuple[Source, tuple[Diagnostic, ...]]:
    """Decode a file. Returns a pair: its text, and errors for forbidden characters and invalid UTF-8.

    A byte order mark is dropped; CRLF and CR become newlines. Invalid UTF-8 and hidden characters are reported, and
    U+FFFD takes their place in the text. `Source.damage` lists their spans, so that `parse` does not report them again.
    """
    if data.startswith(UTF_16):
        source = Source(
            name, _HIDDEN.sub(REPLACEMENT, data.decode("utf-16", "replace")).replace(f"{REPLACEMENT}\n", "\n")
        )
        code, message = codes.INVALID_UTF8, f"bytes {data[0]:02X} {data[1]:02X}: the file is UTF-16, and not UTF-8"
        return source, (Diagnostic(code.code, code.slug, ERROR, message, Label(source, Span(0, 0)), help=_AS_UTF_8),)
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    spans = hidden_characters(text)
    if not spans:
        return Source(name, text), ()
    source = Source(name, _HIDDEN.sub(lambda match: REPLACEMENT * len(match[0]), text), damage=tuple(spans))
    return source, describe_hidden(source, spans, text)
