"""Read the commands of a shell script with their line numbers. Variables, conditions, loops and functions are
interpreted as far as their values are known; nothing is executed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

from xpc.compiler.importing.text.arithmetic import computed
from xpc.compiler.importing.text.branches import Block, Branches
from xpc.compiler.importing.text.conditions import both, concerns_unset, truth_of
from xpc.compiler.importing.text.entries import MAX_SIZE, Unreadable
from xpc.compiler.importing.text.expansion import Variables, joined, numbered
from xpc.compiler.importing.text.shell_files import Files
from xpc.compiler.importing.text.shell_words import ASSIGNMENT, MOST_WORDS, Word, Words, without_redirections
from xpc.grammar.record import field, mutable, record

__all__ = ["Call", "Word", "calls"]

BEFORE = ("do", "then", "else", "{", "(", "!", "time")
"""Shell keywords that may stand before a command."""
CLOSING = {"fi": "if", "esac": "case", "done": "loop", "}": "group"}
"""Maps each keyword that ends a block to the kind of the block."""
DECLARING = ("export", "declare", "readonly", "local", "typeset")
COUNTING = re.compile(r"\(\(\s*(\w+)\s*=([^;]*);\s*\1\s*<(=?)([^;]*);\s*(?:\1\+\+|\+\+\1)\s*\)\)")
"""Matches the head of a counting loop, such as `((i = 0; i < 3; i++))`."""
MOST_COMMANDS = 20_000
"""The largest number of commands that are read, including the commands of a function for each of its calls."""
MOST_NESTED = 12
"""The largest depth of nested function calls and sourced files."""


@record
class Call:
    """One command: the assignments in front of its first word (`X=1 python a.py`), its words, and the folder in which
    it runs (after `cd`).

    `exported` is true if later commands get the assignments in their environment (`export X=1`).
    """

    environment: tuple[Word, ...]
    words: tuple[Word, ...]
    folder: str = ""
    exported: bool = False


def calls(
    text: str,
    sets: Mapping[str, str] | None = None,
    loops: dict[str, tuple[str, ...]] | None = None,
    read: Callable[[str], bytes | None] | None = None,
    written: dict[str, str] | None = None,
    changed: dict[str, str] | None = None,
) -> list[Call]:
    """All commands of a shell script that a run of the script may execute. Assignments and `export` set variables,
    except the variables in `sets`, which keep the value that `sets` gives them.

    Commands of a branch with a false condition are skipped. After a condition of unknown outcome, a variable keeps its
    value only if all branches agree. `loops` receives the values of each `for NAME in ...`, and the loop's body is read
    once, with the first value. `read` reads the files that the script sources. `written` receives the text of each file
    that the script writes, as by `cat > FILE <<EOF`; `changed` receives each file whose new text is unknown, with the
    program that changes it. Raises Unreadable for a quote that is never closed.
    """
    if len(text) > MAX_SIZE:
        raise Unreadable(f"it is longer than {MAX_SIZE} characters")
    shell = _Shell(fixed=dict(sets or {}), read=read)
    shell.loops = shell.loops if loops is None else loops
    shell.files = Files(read, {} if written is None else written, {} if changed is None else changed)
    shell.state.known.update(shell.fixed)
    shell.run(text)
    shell.ended = False
    for name, (_, _, body) in list(shell.functions.items()):
        if name not in shell.called:
            shell.function(name, [], body)
    return shell.out


@mutable
class _Shell(Branches):
    """The state of a script while it is interpreted. Variables in `fixed` keep the user's value; `out` has the commands
    found so far.
    """

    fixed: dict[str, str] = field(factory=dict)
    loops: dict[str, tuple[str, ...]] = field(factory=dict)
    read: Callable[[str], bytes | None] | None = None
    files: Files = field(factory=Files)
    out: list[Call] = field(factory=list)
    functions: dict[str, tuple[int, int, str]] = field(factory=dict)
    called: set[str] = field(factory=set)
    folder: str = ""
    count: int = 0
    nested: int = 0
    lines: int | None = None
    """None while the script itself is read, and a number while it sources another file, whose commands are interpreted
    but not recorded.
    """

    def run(self, text: str, at: int = 0, line: int = 1) -> None:
        """Interpret the text from position `at` to its end. If a function's body begins at `at`, interpret it up to its
        `}`.
        """
        words = Words(text, self.state, at, line)
        base, last, truth = len(self.blocks), "", None
        while True:
            self.count += 1
            if self.count > MOST_COMMANDS:
                raise Unreadable(f"interpreting it takes more than {MOST_COMMANDS} commands", words.line)
            block = self.inner(base)
            if block is not None and block.kind == "case" and not block.armed:
                self.arm(words)
            if self.defines(words):
                continue
            read = self.next(words, last, truth)
            if read is None or (read and read[0].text == "}" and len(self.blocks) == base and base):
                del self.blocks[base:]
                return
            found, last = self.openings(read, base, last, truth)
            if read and not found:
                continue
            head, ended = found[0].text if found else "", words.ended
            if last in ("&&", "||") and head and head not in ("if", "case"):
                truth = self.linked(found, last, truth, ended, words.body)
            else:
                truth = self.command(found, ended, words.body, base)
            if ended == ";;":
                self.next_branch(base)
            last = ended if head not in ("then", "else", "do", "fi", "done", "esac") else ""

    def defines(self, words: Words) -> bool:
        """Read the head of a function's definition, if there is one next. The body is interpreted at each call of the
        function.
        """
        defined = words.function()
        if defined is not None and not self.dead:
            self.functions[defined[0]] = (*defined[1:], words.text)
        return defined is not None

    def next(self, words: Words, link: str, before: bool | None) -> list[Word] | None:
        """Read the words of the next command; None at the end of the text. `link` is the operator in front of the
        command, and `before` says whether the previous command succeeded.
        """
        runs = {"&&": before, "||": None if before is None else not before}.get(link, True)
        state = self.state.copy() if runs is None else None
        words.state, words.reading = self.state, not self.dead and runs is not False
        found = words.command()
        if state is not None and found == []:
            # an assignment to an array after `&&` or `||`, as in `check && ARRAY+=(...)`, may be skipped
            self.state = joined([self.state, state], state)
        return found

    def openings(self, found: list[Word], base: int, link: str, before: bool | None) -> tuple[list[Word], str]:
        """Interpret the keywords in front of a command, such as `else` and `{`. Returns the words after the
        keywords, and the operator, such as `&&`, that links them to the command before.
        """
        while found and (found[0].text == "{" or (len(found) > 1 and found[0].text in BEFORE)):
            if found[0].text == "else":
                self.otherwise(base)
            elif found[0].text == "{":
                link = self.group(found[0], link, before)
            found = found[1:]
        return found, link

    # -- functions ---------------------------------------------------------------------------------------------------

    def function(self, name: str, arguments: list[Word], text: str) -> None:
        """Interpret a call of one of the script's functions."""
        start, line, _ = self.functions[name]
        self.called.add(name)
        if self.nested >= MOST_NESTED:
            return
        before, self.nested = self.state.positional, self.nested + 1
        self.state.positional = [one.text for one in arguments] if arguments else before
        self.begin(Block("function", line, self.state))
        try:
            self.run(text, start, line)
        finally:
            self.blocks.pop()
            self.nested -= 1
            self.state.positional = before

    # -- commands ----------------------------------------------------------------------------------------------------

    def command(self, found: list[Word], ended: str, body: str | None, base: int) -> bool | None:
        """Interpret one command or keyword such as `if` and `done`. Returns whether the command succeeds; None if
        unknown.
        """
        head = found[0].text if found else ""
        block = self.inner(base)
        kind = block.kind if block is not None else ""
        if head in ("if", "elif") and (head == "if" or kind == "if"):
            return self.tested(found, ended)
        if head == "case" and len(found) > 1:
            self.begin(Block("case", found[0].line, self.state.copy(), False, value=found[1]))
        elif head in ("for", "while", "until", "select"):
            self.loop(found)
        elif head == "else":
            self.otherwise(base)
        elif block is not None and CLOSING.get(head) == kind:
            self.blocks.pop()
            if kind != "loop":
                self.close(block, {"if": block.value is not None, "case": block.settled}.get(kind, False))
        elif head not in ("then", "do"):
            if block is not None and kind == "if" and ended != "" and self.pending(block):
                return self.condition(found, ended)
            return self.simple(found, body)
        return None

    def tested(self, found: list[Word], ended: str) -> bool | None:
        """Begin the branch of an `if` or `elif`, and evaluate its condition."""
        if found[0].text == "if":
            self.begin(Block("if", found[0].line, self.state.copy()))
        else:
            self.close_branch(self.blocks[-1])
            if self.blocks[-1].settled:
                self.blocks[-1].truth = False
                return None
            self.blocks[-1].unset = False
        return self.condition(found[1:], ended)

    def linked(self, found: list[Word], link: str, before: bool | None, ended: str, body: str | None) -> bool | None:
        """Interpret the command after `&&` or `||` (`link`). `before` says whether the command in front of the operator
        succeeded. Returns whether the command succeeds; None if this is unknown.
        """
        block = self.blocks[-1] if self.blocks else None
        if block is not None and block.kind == "if" and self.pending(block):
            return self.condition(found, ended)
        if found and (found[0].text in ("[", "[[", "test") or found[0].text.startswith("((")):
            return both(before, truth_of(found), link)
        runs = before if link == "&&" else None if before is None else not before
        if before is None and link == self.unset:
            runs = True  # the condition tests a variable that the script never sets, as in `[ -z "$X" ] && X=5`
        if runs is False or (runs is None and _is_ending(found)):
            return before
        inner = Block("if", found[0].line, self.state.copy(), runs)
        self.begin(inner)
        truth = self.simple(found, body)
        self.blocks.pop()
        assigns = bool(found) and ASSIGNMENT.fullmatch(found[0].text) is not None
        if runs is None and assigns:
            self.close(inner, False)
        return True if runs and assigns else truth

    def simple(self, found: list[Word], body: str | None) -> bool | None:
        """Interpret a command that is not a keyword: a test, `cd`, `source`, `read`, an assignment or a program. `body`
        is its here-document. Returns whether the command succeeds; None if this is unknown.
        """
        if self.dead or not found:
            return None
        words = without_redirections(found)
        head = words[0].text if words else ""
        self.files.command(found, words, body, self.state)
        if "<<<" in [one.text for one in words[:-1]] and "read" in [one.text for one in words[:3]]:
            self.read_words(words)
            return True
        if head == "read" and body is not None:
            self.state.assign(words[-1].text, body)
            return None
        if head in ("exit", "return") or (head == "exec" and len(words) > 1 and words[1].text == "bash"):
            self.end(head, len(words) > 1 and re.fullmatch("0*[1-9]\\d*", words[1].text) is not None)
            return None
        self.unset = ""
        if head in ("[", "[[", "test", "true", "false", ":") or head.startswith("(("):
            links = {"&&": "-z", "||": "-n"}
            self.unset = next((link for link, test in links.items() if concerns_unset(words, self.state, test)), "")
            return truth_of(words)
        if head in ("mapfile", "readarray"):
            self.read_lines([one.text for one in found[1:]])
            return True
        if head == "cd" and len(words) > 1:
            if not words[1].open:
                self.folder = posixpath.normpath(posixpath.join(self.folder, words[1].text))
            return True
        if head in ("source", ".") and len(words) > 1 and not words[1].open:
            self.source(words[1].text)
            return True
        if head == "shift" and self.state.positional:
            self.state.positional = self.state.positional[1:]
            return True
        return self.program(words, body) if words else None

    def program(self, words: list[Word], body: str | None) -> bool | None:
        """Interpret a command that sets variables, calls a function of the script or starts a program. A program is
        only recorded. `body` is the command's here-document.
        """
        before: list[Word] = []
        exported = words[0].text == "export"
        if words[0].text in DECLARING:
            words = [one for one in words[1:] if not re.fullmatch(r"-\w+", one.text)]
        while words and ASSIGNMENT.fullmatch(words[0].text):
            before.append(words.pop(0))
        for one in before if not words else []:
            found = ASSIGNMENT.fullmatch(one.text)
            if found is not None and found[1] not in self.fixed:
                self.state.assign(found[1], found[3], one.open, bool(found[2]))
                self.state.arrays.pop(found[1], None)
        if words and words[0].text in self.functions:
            self.function(words[0].text, words[1:], self.functions[words[0].text][2])
            return None
        words = self.files.inline(words, body)
        if (words or before) and self.lines is None:
            self.out.append(Call(tuple(before), tuple(words), self.folder, exported))
        return None

    def read_words(self, words: list[Word]) -> None:
        """Set the variables in `read -r -a NAME <<< TEXT` or `IFS=, read A B <<< TEXT`."""
        texts = [one.text for one in words]
        at, start = texts.index("<<<"), texts.index("read")
        text, names = words[at + 1], [one for one in texts[start + 1 : at] if not one.startswith("-")]
        cut = next((one.partition("=")[2] for one in texts[:start] if one.startswith("IFS=")), None)
        for one in names:
            self.state.forget(one)
        if text.open or not names:
            return
        parts = text.text.split(cut or None)
        if any(re.fullmatch(r"-\w*a\w*", one) for one in texts[start + 1 : at]):
            self.state.missing.pop(names[-1])
            self.state.arrays[names[-1]] = parts
            return
        last = len(names) - 1
        parts = [*parts[:last], (cut or " ").join(parts[last:])]
        for name, part in zip(names, [*parts, *[""] * len(names)]):
            self.state.assign(name, part)

    def read_lines(self, texts: list[str]) -> None:
        """Interpret `mapfile -t NAME < <(command)`: NAME becomes an array with unknown items. Their number is also
        unknown, except for a command that lists the nodes of a Slurm job (`scontrol`).
        """
        name = next((one for one in texts if re.fullmatch(r"[A-Za-z_]\w*", one)), "MAPFILE")
        if "scontrol" in " ".join(texts):
            self.state.nodes(name)
        else:
            self.state.forget(name)

    def source(self, name: str) -> None:
        """Interpret a file that the script sources, to set its variables."""
        data = None if self.read is None else self.read(name)
        if data is None or self.nested >= MOST_NESTED or len(data) > MAX_SIZE:
            return
        before, self.lines, self.nested = self.lines, 0, self.nested + 1
        depth = len(self.blocks)
        self.begin(Block("source", 0, self.state.copy()))
        try:
            self.run(data.decode("utf-8-sig", "replace"))
        except Unreadable:
            pass
        finally:
            del self.blocks[depth:]
            self.lines, self.nested = before, self.nested - 1

    # -- loops -------------------------------------------------------------------------------------------------------

    def loop(self, found: list[Word]) -> None:
        """Begin a loop. Its body is read once, with the first value. A loop over the script's arguments is skipped,
        because they are unknown.
        """
        self.begin(Block("loop", found[0].line, self.state.copy()))
        name = found[1].text if len(found) > 1 else ""
        counting = COUNTING.fullmatch(name)
        if counting is not None and not self.dead:
            name, values = counting[1], _counted(counting, self.state, found[1].line)
            self.iterate(name, values)
        elif len(found) > 2 and found[0].text == "for" and found[2].text == "in":
            if not found[3:]:
                self.blocks[-1].truth = False
            elif not self.dead:
                self.iterate(name, tuple(one.text for one in found[3:] if not one.open))
        elif any(re.search(r"\$#|\$\{?1\b", one.text) for one in found) and not self.state.positional:
            # the loop is over an argument of the script (`$1`), whose value is unknown, so its body is skipped
            self.blocks[-1].truth = False

    def iterate(self, name: str, values: tuple[str, ...]) -> None:
        """Set the variable of a loop to its first value, and record all values. If there are no values, the variable is
        unknown.
        """
        if values:
            self.state.assign(name, self.fixed.get(name, values[0]))
            self.loops[name] = values
        else:
            self.state.forget(name)


def _counted(found: re.Match[str], state: Variables, line: int) -> tuple[str, ...]:
    """The values of `i` in `for ((i = 0; i < 3; i++))`: 0, 1 and 2. Empty if they are unknown or very many."""
    ends = [computed(text) if not removed else None
            for text, removed in (numbered(found[n], state, line) for n in (2, 4))]  # fmt: skip
    if ends[0] is None or ends[1] is None or ends[1] - ends[0] > MOST_WORDS:
        return ()
    return tuple(map(str, range(ends[0], ends[1] + len(found[3]))))


def _is_ending(words: list[Word]) -> bool:
    return bool(words) and words[0].text in ("exit", "return", "{", "echo", "break", "continue")
