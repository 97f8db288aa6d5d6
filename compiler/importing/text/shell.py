"""Read the commands of a shell script with their line numbers: quotes, continuations, comments, and the script's
variables.
"""

from __future__ import annotations

import re

from xpc.compiler.importing.text.entries import MAX_SIZE, Unreadable
from xpc.grammar.record import field, mutable, record

VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]{0,1024}))?\}|(\w+))")
ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.S)
ENDS = ";&|\n"


@record
class Word:
    """A word as the shell passes it to the program; `open` is the name of a variable in it that the script
    does not set.
    """

    text: str
    line: int
    open: str = ""


@record
class Call:
    """One command: the variables set in front of it, and its words."""

    environment: tuple[Word, ...]
    words: tuple[Word, ...]


def calls(text: str) -> list[Call]:
    """The commands of a script. Assignments and `export` set variables. Raises Unreadable for a quote that is never
    closed.
    """
    if len(text) > MAX_SIZE:
        raise Unreadable(f"it is larger than {MAX_SIZE} characters")
    reader = _Reader(text)
    out: list[Call] = []
    while True:
        words = reader.command()
        if words is None:
            return out
        before: list[Word] = []
        if words and words[0].text in ("export", "declare", "readonly", "local"):
            words = words[1:]
        while words and ASSIGNMENT.fullmatch(words[0].text):
            before.append(words.pop(0))
        for one in before if not words else []:
            found = ASSIGNMENT.fullmatch(one.text)
            if found is not None:
                reader.known[found[1]] = found[2]
        if words or before:
            out.append(Call(tuple(before), tuple(words)))


@mutable
class _Reader:
    text: str = field(repr=False)
    at: int = 0
    line: int = 1
    known: dict[str, str] = field(factory=dict)
    put_in: int = 0

    def command(self) -> list[Word] | None:
        """The words up to the end of the next command; None at the end of the script."""
        words: list[Word] = []
        while self.at < len(self.text):
            character = self.text[self.at]
            if self.text.startswith("\\\n", self.at) or self.text.startswith("\\\r\n", self.at):
                self.skip(2 + (self.text[self.at + 1] == "\r"))
            elif character in " \t\r":
                self.skip(1)
            elif character == "#":
                while self.at < len(self.text) and self.text[self.at] != "\n":
                    self.at += 1
            elif character in ENDS:
                self.skip(1)
                if words:
                    return words
            else:
                words.append(self.word())
        return words or None

    def skip(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    def word(self) -> Word:
        line, out, missing = self.line, "", ""
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in " \t\r" or character in ENDS:
                break
            if self.text.startswith(("\\\n", "\\\r\n"), self.at):
                break
            if character == "'":
                out += self.quoted(line)
            elif character == '"':
                part, gone = self.expanded(self.double(line))
                out, missing = out + part, missing or gone
            elif character == "\\":
                out += self.text[self.at + 1 : self.at + 2]
                self.skip(2)
            else:
                start = self.at
                while self.at < len(self.text) and self.text[self.at] not in " \t\r'\"\\" + ENDS:
                    self.at += 1
                part, gone = self.expanded(self.text[start : self.at])
                out, missing = out + part, missing or gone
        return Word(out, line, missing)

    def quoted(self, line: int) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unreadable("a quote is not closed", line)
        inside = self.text[self.at + 1 : end]
        self.skip(end + 1 - self.at)
        return inside

    def double(self, line: int) -> str:
        out, at = "", self.at + 1
        while at < len(self.text) and self.text[at] != '"':
            if self.text[at] == "\\" and self.text[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
                out += "" if self.text[at + 1] == "\n" else self.text[at + 1]
                at += 2
            else:
                out += self.text[at]
                at += 1
        if at >= len(self.text):
            raise Unreadable("a quote is not closed", line)
        self.skip(at + 1 - self.at)
        return out

    def expanded(self, part: str) -> tuple[str, str]:
        """The text with the script's variables filled in, and the name of a variable that the script does not set."""
        missing = ["$(...)"] if "$(" in part or "`" in part else []

        def one(found: re.Match[str]) -> str:
            name = found[1] or found[3]
            if name in self.known:
                self.put_in += len(self.known[name])
                if self.put_in > 4 * MAX_SIZE:  # variables that each use the previous one twice grow exponentially
                    raise Unreadable(f"its variables expand to more than {4 * MAX_SIZE} characters", self.line)
                return self.known[name]
            if found[2] is not None:
                return found[2]
            missing.append(f"${name}")
            return found[0]

        return VARIABLE.sub(one, part), missing[0] if missing else ""
