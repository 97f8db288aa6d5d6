"""The files that a shell script writes before the training, such as a configuration by `cat > FILE <<EOF`. The text of
a file that a command copies, or in which it replaces words, is computed; that of any other written file is unknown.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

from xpc.compiler.importing.text import config_edits
from xpc.compiler.importing.text.entries import MAX_SIZE
from xpc.compiler.importing.text.expansion import Budget, Variables
from xpc.compiler.importing.text.filters import replaced
from xpc.compiler.importing.text.shell_words import Word
from xpc.grammar.record import field, mutable

VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
CONFIGURATIONS = (".yaml", ".yml", ".json")
INLINE = "inline-"
"""The beginning of the names under which Python code of a shell script (`python -c CODE`) is stored: `inline-1.py`."""
INLINE_TRAINS = re.compile(r"Trainer|\.train\(")
"""Matches Python code in a shell script that may train. Code without a match, such as `print(torch.__version__)`, is
not imported.
"""
READING = ("cat", "tee", "envsubst", "sed", "yq", "jq")
"""Commands whose standard input is interpreted: `< FILE`, a here-document, or a pipe from the previous command."""


@mutable
class Files:
    """The files that a script writes. `written` maps a file to its text; `changed` maps a file with unknown text to the
    program that wrote it. `read` reads a file of the repository, and `printed` is the output of the last command.
    """

    read: Callable[[str], bytes | None] | None = None
    written: dict[str, str] = field(factory=dict)
    changed: dict[str, str] = field(factory=dict)
    printed: str | None = None
    budget: Budget = field(factory=Budget)

    def command(self, found: list[Word], words: list[Word], body: str | None, state: Variables) -> None:
        """Interpret one command. `found` are all its words, `words` the words without redirections, and `body` its
        here-document.
        """
        first = next((n for n, one in enumerate(words) if not ASSIGNED.match(one.text)), 0)
        own = {name: one for name, _, one in (word.text.partition("=") for word in words[:first])}
        texts = [one.text for one in words[first:]]
        head = posixpath.basename(texts[0]) if texts else ""
        given, out, more = _redirections([one.text for one in found])
        self.budget = state.budget
        source = body if body is not None else self.printed
        if given and head in READING:
            source = self.text(given)
        self.printed = None
        if head == "tee" and len(texts) > 1:
            out, more = texts[-1], "-a" in texts
        elif head in ("cp", "mv") and len(texts) > 2:
            out = posixpath.join(texts[-1], posixpath.basename(texts[-2])) if texts[-1].endswith("/") else texts[-1]
        elif head in ("sed", "yq") and len(texts) > 2 and any(re.match(r"-\w*i|--in-?place", one) for one in texts):
            out = texts[-1]
        made = self.edited(texts, source, state, own) if head in ("yq", "jq") else self.made(head, texts, source, state)
        self.budget.spend(len(made or ""))
        if out and out != "/dev/null":
            self.write(out, made, more, head)
        elif made is not None:
            self.printed = made

    def inline(self, words: list[Word], body: str | None) -> list[Word]:
        """If a command such as `python -c CODE` or `python - <<EOF` has code that trains, store the code as a file in
        `written`. Returns the command's words, with the file's name instead of the code.
        """
        at = next((n for n, one in enumerate(words) if re.match(r"(?:.*/)?python[\d.]*$", one.text)), len(words))
        rest = [one for one in words[at + 1 :] if one.text != "-u"]
        code = rest[1].text if len(rest) > 1 and rest[0].text == "-c" else None
        if code is None and body is not None and at < len(words) and (not rest or rest[0].text == "-"):
            code, rest = body, [Word("-", words[at].line), *rest]
        if code is None or not INLINE_TRAINS.search(code):
            return words
        name = f"{INLINE}{sum(one.startswith(INLINE) for one in self.written) + 1}.py"
        self.written[name] = code
        return [*words[: at + 1], Word(name, words[at].line), *rest[2:]]

    def made(self, head: str, texts: list[str], source: str | None, state: Variables) -> str | None:
        """The output of a command such as `cat A` or `sed`; None if it is unknown. `source` is the text that the
        command gets as its standard input.
        """
        names = [one for one in texts[1:] if not one.startswith("-")]
        if head == "cat":
            parts = [self.text(one) for one in names]
            return source if not names else None if None in parts else "".join(filter(None, parts))
        if head == "tee":
            return source
        if head == "echo":
            words = " ".join(one for one in texts[1:] if one not in ("-e", "-n"))
            return (words.replace("\\n", "\n") if "-e" in texts else words) + "\n"
        if head in ("cp", "mv") and len(names) > 1:
            return self.text(names[-2])
        if head == "envsubst" and source is not None:
            return _with_variables(source, names[0] if names else "", state)
        if head == "sed" and names and "-n" not in texts:
            extended = any(re.fullmatch(r"-\w*[Er]\w*", one) for one in texts)
            if "-e" not in texts:
                return self.replaced(names[:1], self.text(names[1]) if len(names) > 1 else source, extended)
            return self.replaced(names[:-1], self.text(names[-1]), extended)
        return None

    def edited(self, texts: list[str], source: str | None, state: Variables, own: dict[str, str]) -> str | None:
        """The output of a command of yq or jq; None if it is unknown. `own` are the variables that only this command
        gets, as in `LR=1e-5 yq '.lr = env(LR)'`.
        """
        program = config_edits.split(texts)
        text = self.text(program[1]) if program is not None and program[1] else source
        if program is None or text is None:
            return None
        self.budget.spend(len(text) * (1 + program[0].count("=")))
        known = {key: one for key, one in state.known.items() if key not in state.missing}
        return config_edits.assigned(program[0], text, program[2], {**known, **own})

    def write(self, name: str, text: str | None, more: bool, head: str) -> None:
        """Set the text of a file or, with `more`, append to it. If `text` is None, record that the program `head`
        changes the file.
        """
        before = self.text(name) if more else ""
        if text is None or before is None or len(text) + len(before) > MAX_SIZE:
            self.written.pop(name, None)
            if name.endswith(CONFIGURATIONS):
                self.changed[name] = head
            return
        self.changed.pop(name, None)
        self.written[name] = before + text

    def text(self, name: str) -> str | None:
        """The text of a file at this point of the script; None if it is unknown."""
        if name in self.written:
            return self.written[name]
        data = None if self.read is None or name in self.changed else self.read(name)
        self.budget.spend(len(data or b""))
        return None if data is None or len(data) > MAX_SIZE else data.decode("utf-8-sig", "replace")

    def replaced(self, commands: list[str], text: str | None, extended: bool = False) -> str | None:
        """Apply sed's commands `s/OLD/NEW/g` to a text in order; None if there is any other command of sed. `extended`
        is the option -E.
        """
        for one in [part.strip() for command in commands for part in command.split("\n") if part.strip()]:
            self.budget.spend(len(text or ""))
            text = None if text is None else replaced(one, text, extended)
        return text


def _redirections(texts: list[str]) -> tuple[str, str, bool]:
    """The file that a command reads by `< FILE`, the file that it writes by `> FILE` or `>> FILE`, and whether it
    appends (`>>`). A name is "" if there is no such redirection.
    """
    given, out, more = "", "", False
    for n, one in enumerate(texts):
        found = re.fullmatch(r"(<|1?>>?)(?!\()([^<>&]*)", one)
        if found is None:
            continue
        name = found[2] or (texts[n + 1] if n + 1 < len(texts) else "")
        if found[1] == "<":
            given = name
        else:
            out, more = name, found[1].endswith(">>")
    return given, out, more


def _with_variables(text: str, only: str, state: Variables) -> str:
    """Replace `$NAME` and `${NAME}` in a text as envsubst does. With `only`, replace only the variables that it
    names.
    """
    names = {one[0] or one[1] for one in VARIABLE.findall(only)}

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        known = name in state.known and name not in state.missing and (not names or name in names)
        if known:
            state.budget.spend(len(state.known[name]))
        return state.known[name] if known else found[0]

    return VARIABLE.sub(value, text)
