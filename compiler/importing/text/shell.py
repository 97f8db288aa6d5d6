"""Read the commands of a shell script with their line numbers: quotes, continuations, comments, and the script's
variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from xpc.compiler.importing.text.entries import MAX_SIZE, Unreadable
from xpc.grammar.record import field, mutable, record

VARIABLE = re.compile(
    r"\$(?:\{(?P<name>\w+)(?::?[-=](?P<default>[^${}]{0,1024})|:?\?[^${}]{0,1024}|(?P<last>##\*/))?\}|(?P<plain>\w+))"
)
"""`$X`, `${X}`, `${X:-default}`, `${X:?message}`, and `${X##*/}`, the part after the last slash."""
WORDS_GIVEN = re.compile(r"\$(?:[@*]|\{[@*](?::\d+)?\})")
"""The script's own arguments: empty in an import."""
ARRAY = re.compile(r"\$\{(\w+)\[[@*]\]\}")
BEFORE = ("do", "then", "else", "{", "(", "!", "if", "while")
"""Words before a command."""
REDIRECTION = re.compile(r"[0-9]?(?:>>?|<)([^\s<>]*)")
"""A redirection of input or output; its file is the next word if the group is empty."""
ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.S)
ENDS = ";&|\n"
DEPTH = 4
SUM = re.compile(r"\$\(\(\s*(\d{1,12})\s*([-+*/])\s*(\d{1,12})\s*\)\)")
"""One operation on whole numbers, such as `$((16 / 4))`."""
ARRAY_BEGIN = re.compile(r"(\w+)(\+?)=\(")


def _computed(found: re.Match[str]) -> str:
    """The result of one operation on whole numbers; the text itself for a division by zero."""
    first, second = int(found[1]), int(found[3])
    if found[2] == "/":
        return str(first // second) if second else found[0]
    return str(first + second if found[2] == "+" else first - second if found[2] == "-" else first * second)


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
    """One command: the variables set before its first word, and its words."""

    environment: tuple[Word, ...]
    words: tuple[Word, ...]


def calls(text: str, sets: Mapping[str, str] | None = None, loops: dict[str, tuple[str, ...]] | None = None,
          ) -> list[Call]:  # fmt: skip
    """The commands of a script. Assignments and `export` set variables; those in `sets` keep the value given there.

    `loops` receives the values of each `for NAME in ...`, and its body is read once, with the first value. Raises
    Unreadable for a quote that is never closed.
    """
    if len(text) > MAX_SIZE:
        raise Unreadable(f"it is larger than {MAX_SIZE} characters")
    fixed = dict(sets or {})
    reader = _Reader(text, known=dict(fixed))
    out: list[Call] = []
    while True:
        words = reader.command()
        if words is None:
            return out
        words = _without_redirections(words)
        before: list[Word] = []
        while len(words) > 1 and words[0].text in BEFORE:
            words = words[1:]
        if len(words) > 3 and words[0].text == "for" and words[2].text == "in":
            values = tuple(one.text for one in words[3:] if not one.open)
            if values:
                reader.known[words[1].text] = fixed.get(words[1].text, values[0])
                if loops is not None:
                    loops[words[1].text] = values
            continue
        if words and words[0].text in ("export", "declare", "readonly", "local"):
            words = words[1:]
        while words and ASSIGNMENT.fullmatch(words[0].text):
            before.append(words.pop(0))
        for one in before if not words else []:
            found = ASSIGNMENT.fullmatch(one.text)
            if found is not None and found[1] not in fixed and not one.open:
                reader.known[found[1]] = found[2]
        if words or before:
            out.append(Call(tuple(before), tuple(words)))


def _without_redirections(words: list[Word]) -> list[Word]:
    """The words without `> FILE`, `2>FILE`, `< FILE` and so on."""
    out: list[Word] = []
    skipped = False
    for one in words:
        found = None if skipped else REDIRECTION.fullmatch(one.text)
        if found is None and not skipped:
            out.append(one)
        skipped = found is not None and not found[1]
    return out


@mutable
class _Reader:
    text: str = field(repr=False)
    at: int = 0
    line: int = 1
    known: dict[str, str] = field(factory=dict)
    arrays: dict[str, list[Word]] = field(factory=dict)
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
            elif (array := ARRAY_BEGIN.match(self.text, self.at)) is not None:
                self.array(array)
            else:
                words += self.expanded_word()
        return words or None

    def array(self, found: re.Match[str]) -> None:
        """Read `NAME=(a b c)` or `NAME+=(a b c)`."""
        self.skip(found.end() - self.at)
        inside: list[Word] = []
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] in " \t\r\n\\" and not self.text.startswith("\\ ", self.at):
                self.skip(1)
            elif self.text[self.at] == "#":
                while self.at < len(self.text) and self.text[self.at] != "\n":
                    self.at += 1
            elif self.text[self.at] in ";&|":
                self.skip(1)
            else:
                inside += self.expanded_word(")")
        self.skip(1)
        self.arrays[found[1]] = [*(self.arrays.get(found[1], []) if found[2] else []), *inside]

    def expanded_word(self, end: str = "") -> list[Word]:
        """The next word; several for `"${ARRAY[@]}"`, an empty list for the script's own arguments, such as `"$@"`."""
        start, word = self.at, self.word(end)
        raw = self.text[start : self.at].strip('"')
        if WORDS_GIVEN.fullmatch(raw):
            return []
        unquoted = not {'"', "'"} & set(self.text[start : self.at])
        if unquoted and "$" in raw and not word.open and ASSIGNMENT.fullmatch(raw) is None:
            return [Word(part, word.line) for part in word.text.split()]  # as the shell splits `$LAUNCHER train.py`
        array = ARRAY.fullmatch(raw)
        return self.arrays[array[1]] if array is not None and array[1] in self.arrays else [word]

    def skip(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    def word(self, end: str = "") -> Word:
        """The next word; it also ends before the character `end`."""
        line, out, missing = self.line, "", ""
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in " \t\r" or character in ENDS or character == end:
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
            elif self.text.startswith("$(", self.at):
                start = self.at
                self.skip(self.closed() - self.at)
                part, gone = self.expanded(self.text[start : self.at])
                out, missing = out + part, missing or gone
            else:
                start = self.at
                while self.at < len(self.text) and self.text[self.at] not in " \t\r'\"\\" + ENDS + end:
                    self.at += 1
                    if self.text.startswith("$(", self.at):
                        break
                part, gone = self.expanded(self.text[start : self.at])
                out, missing = out + part, missing or gone
        return Word(out, line, missing)

    def closed(self) -> int:
        """The position after the `$(...)` that begins here."""
        depth, at = 0, self.at + 1
        while at < len(self.text):
            depth += (self.text[at] == "(") - (self.text[at] == ")")
            at += 1
            if not depth:
                break
        return at

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
            name = found["name"] or found["plain"]
            if name in self.known:
                self.put_in += len(self.known[name])
                if self.put_in > 4 * MAX_SIZE:  # variables that each use the previous one twice grow exponentially
                    raise Unreadable(f"its variables expand to more than {4 * MAX_SIZE} characters", self.line)
                return self.known[name].rpartition("/")[2] if found["last"] else self.known[name]
            if found["default"] is not None:
                return found["default"]
            missing.append(f"${name}")
            return found[0]

        for _ in range(DEPTH):  # a default may have a variable in it: `${A:-${B:-c}}`
            done = VARIABLE.sub(one, part)
            if done == part or missing:
                break
            part = done
        part = SUM.sub(_computed, done)
        if "$((" not in part and missing == ["$(...)"]:
            missing = ["$(...)"] if "$(" in part or "`" in part else []
        return part, missing[0] if missing else ""
