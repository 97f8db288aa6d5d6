"""Split a shell script into commands, and commands into words. Words are expanded as far as the values of the variables
are known.
"""

from __future__ import annotations

import re

from xpc.compiler.importing.text.entries import Unreadable
from xpc.compiler.importing.text.expansion import HOSTS, Variables, closed, expand, first_missing, numbered
from xpc.grammar.record import field, mutable, record

ENDS = ";&|\n"
WORDS_GIVEN = re.compile(r"\$(?:[@*]|\{[@*](?::\d+)?\})")
"""Matches `$@` and `$*`, the arguments of the script, which an import assumes to be empty."""
ARRAY = re.compile(r"\$\{(!?)(\w+)\[[@*]\]\}")
HOSTS_LISTED = re.compile(rf"\s*\$\(\s*{HOSTS.pattern}\)\s*")
UNQUOTED = re.compile(r"\$\(|`")
ARRAY_BEGIN = re.compile(r"(\w+)(\+?)=\(")
PART = re.compile(r"(?:\$\((?:[^()]|\([^()]*\))*\)|\S)+")
ITEM = re.compile(r"\[([^\]]+)\]=(.*)", re.S)
BRACES = re.compile(r"(?<![$\\])\{(?:(-?\d+)\.\.(-?\d+)(?:\.\.-?(\d+))?|([\w.+/=-]*(?:,[\w.+/=-]*)+))\}")
"""Matches brace expansions, such as `{1..3}`, `{0..8..2}` and `{a,b}`."""
MOST_WORDS = 100
"""The largest number of words to which one brace expansion may expand."""
HEREDOC = re.compile(r"<<(-?)\s*(?:'(\w+)'|\"(\w+)\"|\\?(\w+))")
FUNCTION = re.compile(r"[ \t]*(?:function\s+([\w.:-]+)\s*(?:\(\s*\))?|([\w.:-]+)\s*\(\s*\))\s*\{(?=\s)")
REDIRECTION = re.compile(r"[0-9&]?(?:>>?|<)&?([^\s<>]*)")
"""Matches a redirection such as `>FILE` or `2>&1`. The group is the name of the file; if it is empty, the next word is
the name.
"""
ASSIGNMENT = re.compile(r"(\w+)(\+?)=(.*)", re.S)
BEFORE_ARITHMETIC = ("if", "elif", "while", "until", "for", "then", "else", "do", "!", "{")
"""Keywords after which `((` begins an arithmetic command."""
COMPUTED = re.compile(r"\s*(\w+)\s*(?:([-+*/%]?)=(?!=)(.*)|(\+|-)\4\s*)", re.S)
"""Matches an arithmetic command that sets a variable: `N = 4`, `N *= 2` or `N++`."""


@record
class Word:
    """An expanded word of a command, with its line. `open` is an unset variable in the word, such as `$LR`, or "" if
    the word is completely known.
    """

    text: str
    line: int
    open: str = ""


@mutable
class Words:
    """Splits a script into commands, beginning at position `at`. After each command, `ended` is the operator that
    follows it (`;`, `&&`, `||`, ...), and `body` is the text of its here-document.
    """

    text: str = field(repr=False)
    state: Variables
    at: int = 0
    line: int = 1
    ended: str = ""
    body: str | None = None
    reading: bool = True
    """Whether an assignment to an array has an effect. False for a branch of the script that does not run."""

    def command(self) -> list[Word] | None:
        """Read the next command. Returns its expanded words; None at the end of the script."""
        words: list[Word] = []
        heredoc: re.Match[str] | None = None
        self.body, sets = None, False
        while self.at < len(self.text):
            character = self.text[self.at]
            if self.text[self.at :] == "\\":  # the script's text ends with a backslash
                self.skip(1)
            elif self.text.startswith(("\\\n", "\\\r\n"), self.at):
                self.skip(2 + (self.text[self.at + 1] == "\r"))
            elif character in " \t\r":
                self.skip(1)
            elif character == "#":
                self.comment()
            elif character in ENDS:
                double = self.text[self.at : self.at + 2]
                self.ended = double if double in ("&&", "||", ";;") else character
                self.skip(len(self.ended))
                if heredoc is not None and self.ended == "\n":
                    self.body = self.document(heredoc)
                if words or sets or self.ended == ";;":
                    if heredoc is not None and self.body is None:
                        self.body = self.document_later(heredoc)
                    return words
            elif (found := HEREDOC.match(self.text, self.at)) and not self.text.startswith("<<<", self.at):
                heredoc = found
                self.skip(found.end() - self.at)
            elif (array := ARRAY_BEGIN.match(self.text, self.at)) is not None:
                self.array(array)
                sets = True
            elif self.text.startswith("((", self.at) and all(one.text in BEFORE_ARITHMETIC for one in words):
                words.append(self.arithmetic())
            else:
                words += self.expanded_word()
                if len(words) == 3 and (words[0].text, words[2].text) == ("case", "in"):
                    self.ended = "in"
                    return words
        self.ended = ""
        return words or ([] if sets else None)

    def arithmetic(self) -> Word:
        """Read an arithmetic command as one word. `((N = 2 * 4))` gives `N=8`. In a condition such as `((N > 1))`, the
        variables are replaced by their values. The head of a loop, `((i = 0; i < 3; i++))`, stays unchanged.
        """
        start, line = self.at, self.line
        self.skip(closed(self.text, start) - start)
        inside = self.text[start + 2 : self.at].removesuffix("))")
        found = COMPUTED.fullmatch(inside) if ";" not in inside else None
        if ";" in inside:
            return Word(f"(({inside}))", line)
        if found is None:
            text, removed = numbered(inside, self.state, line)
            return Word(f"(({text}))", line, removed)
        name, sign = found[1], found[2] or found[4] or ""
        value = f"({'1' if found[4] else found[3]})"
        text, removed = expand(f"$(({f'{name} {sign} {value}' if sign else value}))", self.state, line)
        return Word(f"{name}={text}", line, removed)

    def function(self) -> tuple[str, int, int] | None:
        """Skip a function definition at the current position. Returns the function's name, and the position and line
        where its body begins; None if no definition begins here.
        """
        found = self.function_head()
        if found is None:
            return None
        start, line, depth = self.at, self.line, 1
        inner = Words(self.text, self.state.copy(), start, line, reading=False)
        while depth:
            if inner.function_head() is not None:
                depth += 1
                continue
            one = inner.command()
            if one is None:
                break
            depth += (one[0].text == "{" if one else False) - (one[0].text == "}" if one else False)
        self.skip(inner.at - start)
        return found[1] or found[2], start, line

    def function_head(self) -> re.Match[str] | None:
        """Skip the head `NAME() {` of a function definition at the current position; None if there is none."""
        at = self.at
        while at < len(self.text) and self.text[at] in " \t\r\n;#":
            end = self.text.find("\n", at) if self.text[at] == "#" else at + 1
            at = len(self.text) if end < 0 else end
        found = FUNCTION.match(self.text, at)
        if found is not None:
            self.skip(found.end() - self.at)
        return found

    def comment(self) -> None:
        """Skip a comment up to the end of its line."""
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def document(self, found: re.Match[str]) -> str:
        """Read the here-document that begins here. Variables in it are expanded, unless the delimiter is quoted, as in
        `<<'EOF'`.
        """
        name, start = found[2] or found[3] or found[4], self.at
        end = re.compile(rf"^[ \t]*{re.escape(name)}[ \t\r]*$", re.M).search(self.text, self.at)
        body = self.text[start : end.start() if end else len(self.text)]
        self.skip((end.end() if end else len(self.text)) - self.at)
        return body if found[2] or found[3] else expand(body.replace("\\\n", ""), self.state, self.line)[0]

    def document_later(self, found: re.Match[str]) -> str:
        """Read the here-document of a command whose line continues after `<<EOF`, as in `cat <<EOF | tee x`."""
        location = self.text.find("\n", self.at)
        if location < 0:
            return ""
        rest = Words(self.text, self.state, location + 1, self.line + 1)
        body = rest.document(found)
        lines = self.text.count("\n", location + 1, rest.at)
        # replace the here-document by newlines and blanks, so that later positions and line numbers do not change
        blank = "\n" * lines + " " * (rest.at - location - 1 - lines)
        self.text = self.text[: location + 1] + blank + self.text[rest.at :]
        return body

    def patterns(self) -> list[str] | None:
        """Read the patterns of the next branch of a `case`, such as `a|b)`; None at `esac`."""
        while self.at < len(self.text):
            if self.text[self.at] in " \t\r\n;":
                self.skip(1)
            elif self.text[self.at] == "#":
                self.comment()
            else:
                break
        end = self.text.find(")", self.at)
        if self.text.startswith("esac", self.at) or end < 0:
            return None
        raw = self.text[self.at : end]
        self.skip(end + 1 - self.at)
        return [one.strip().strip("\"'") for one in raw.lstrip("(").split("|")]

    def array(self, found: re.Match[str]) -> None:
        """Read an array assignment: `NAME=(a b c)`, `NAME+=(a b c)`, or `NAME=([key]=value ...)`."""
        self.skip(found.end() - self.at)
        inside: list[Word] = []
        start, counted = self.at, True
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] in " \t\r\n\\" and not self.text.startswith("\\ ", self.at):
                self.skip(1)
            elif self.text[self.at] == "#":
                self.comment()
            elif self.text[self.at] in ";&|":
                self.skip(1)
            else:
                begin = self.at
                inside += self.expanded_word(")")
                counted = counted and not UNQUOTED.match(self.text, begin)
        hosts = HOSTS_LISTED.fullmatch(self.text, start, self.at)
        self.skip(1)
        if not self.reading:
            return
        if hosts is not None:
            self.state.nodes(found[1])
            return
        items = [ITEM.fullmatch(one.text) for one in inside]
        if items and all(items):
            self.state.tables[found[1]] = {one[1].strip("\"'"): one[2] for one in items if one is not None}
            return
        before = self.state.arrays.get(found[1], []) if found[2] else []
        if not found[2]:
            self.state.missing.pop(f"{found[1]}[@]", None)
        if not counted and any(one.open.startswith("$(") for one in inside):
            # the number of items is unknown, because a command may print several words
            self.state.missing[f"{found[1]}[@]"] = "$(...)"
        self.state.arrays[found[1]] = [*before, *(one.text for one in inside)]
        self.state.missing.update(
            {f"{found[1]}[{len(before) + n}]": one.open for n, one in enumerate(inside) if one.open}
        )

    def expanded_word(self, end: str = "") -> list[Word]:
        """Read the next word and expand it. An array such as `"${ARRAY[@]}"`, or `"$@"` (the arguments of the current
        function), becomes several words.
        """
        start, line = self.at, self.line
        word = self.word(end)
        source = self.text[start : self.at]
        raw = source.strip('"')
        if WORDS_GIVEN.fullmatch(raw):
            return [Word(one, line) for one in self.state.positional or []]
        array = ARRAY.fullmatch(raw)
        if array is not None and array[1]:
            keys = list(self.state.tables.get(array[2], ())) or range(len(self.state.arrays.get(array[2], ())))
            return [Word(str(one), line) for one in keys]
        if array is not None and array[2] in self.state.tables:
            return [Word(one, line) for one in self.state.tables[array[2]].values()]
        if array is not None and array[2] in self.state.arrays:
            removed = [self.state.missing.get(f"{array[2]}[{n}]", "") for n in range(len(self.state.arrays[array[2]]))]
            return [Word(one, line, open) for one, open in zip(self.state.arrays[array[2]], removed)]
        unquoted = not {'"', "'"} & set(re.sub(r"\$\([^()]*\)|\$\{[^{}]*\}", "", source))
        braces = BRACES.search(word.text) if unquoted and BRACES.search(source) and not ASSIGNMENT.match(raw) else None
        if braces is not None:
            self.state.budget.spend(len(_each(braces)) * (len(word.text) + 10), line)
            return [Word(word.text[: braces.start()] + one + word.text[braces.end() :], line, word.open)
                    for one in _each(braces)]  # fmt: skip
        output = word.text.startswith("$(") and closed(word.text, 1) == len(word.text)  # the output of a command
        if unquoted and "$" in raw and ASSIGNMENT.fullmatch(raw) is None and not raw.startswith("$(") and not output:
            parts = PART.findall(word.text)  # split the value into words, as the shell does for `$LAUNCHER train.py`
            if len(parts) > 1 or not word.open:
                return [Word(part, line, word.open if "$" in part else "") for part in parts]
        return [word]

    def skip(self, count: int) -> None:
        """Advance by `count` characters, and count their newlines."""
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    def word(self, end: str = "") -> Word:
        """Read the next word. It ends at white space or before the character `end`."""
        line, out, missing = self.line, "", ""
        while self.at < len(self.text):
            character = self.text[self.at]
            redirected = character == "&" and self.text[self.at - 1 : self.at] == ">"  # `&` in `2>&1`
            if (character in " \t\r" or character in ENDS or character == end) and not redirected:
                break
            if self.text.startswith(("\\\n", "\\\r\n"), self.at):
                break
            start = self.at
            if character == "'":
                out += self.quoted(line)
                continue
            if character == '"':
                part = self.double(line)
            elif character == "\\":
                out += self.text[self.at + 1 : self.at + 2]
                self.skip(2)
                continue
            elif self.text.startswith(("$(", "${"), self.at):
                self.skip(closed(self.text, self.at + 1) - self.at)
                part = self.text[start : self.at]
            elif character == "`":
                stop = self.text.find("`", self.at + 1)
                self.skip((len(self.text) if stop < 0 else stop + 1) - self.at)
                part = self.text[start : self.at]
            else:
                self.at += 1
                while self.at < len(self.text) and self.text[self.at] not in " \t\r'\"\\`$" + ENDS + end:
                    self.at += 1
                part = self.text[start : self.at]
            part, removed = expand(part, self.state, line)
            out, missing = out + part, first_missing(missing, removed)
        return Word(out, line, missing)

    def quoted(self, line: int) -> str:
        """Read a single-quoted string. Raises Unreadable if the quote is never closed."""
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unreadable("a quote is not closed", line)
        inside = self.text[self.at + 1 : end]
        self.skip(end + 1 - self.at)
        return inside

    def double(self, line: int) -> str:
        """Read a double-quoted string without expanding it; `$(...)` and `${...}` inside may contain quotes. Raises
        Unreadable if the quote is never closed.
        """
        out, at = "", self.at + 1
        while at < len(self.text) and self.text[at] != '"':
            if self.text[at] == "\\" and self.text[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
                out += "" if self.text[at + 1] == "\n" else self.text[at + 1]
                at += 2
            elif self.text.startswith(("$(", "${"), at):
                stop = closed(self.text, at + 1)
                # an unclosed bracket may extend the search to the end of the text
                self.state.budget.spend(stop - at, line)
                if stop >= len(self.text) and self.text[-1:] != (")" if self.text[at + 1] == "(" else "}"):
                    stop = at + 1
                out += self.text[at:stop]
                at = stop
            else:
                out += self.text[at]
                at += 1
        if at >= len(self.text):
            raise Unreadable("a quote is not closed", line)
        self.skip(at + 1 - self.at)
        return out


def _each(braces: re.Match[str]) -> list[str]:
    """The words of a brace expansion: 1, 2, 3 for `{1..3}`."""
    first, last, step, listed = braces.groups()
    if listed is not None:
        return listed.split(",")[:MOST_WORDS]
    start, end, by = int(first), int(last), max(1, int(step or 1))
    count = min(abs(end - start) // by + 1, MOST_WORDS)
    return [str(start + n * by * (1 if end >= start else -1)) for n in range(count)]


def without_redirections(words: list[Word]) -> list[Word]:
    """The command's words without redirections such as `> FILE`, `2>FILE` and `< FILE`."""
    out: list[Word] = []
    skipped = False
    for one in words:
        found = None if skipped else REDIRECTION.fullmatch(one.text)
        if found is None and not skipped:
            out.append(one)
        skipped = found is not None and not found[1]
    return out
