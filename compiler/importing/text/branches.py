"""The conditions, loops, functions and groups that enclose the current command of a shell script, and the variables
after each branch.
"""

from __future__ import annotations

import fnmatch
import re

from xpc.compiler.importing.text.conditions import both, compared, concerns_unset, truth_of
from xpc.compiler.importing.text.entries import Unreadable
from xpc.compiler.importing.text.expansion import Variables, joined
from xpc.compiler.importing.text.shell_words import Word, Words
from xpc.grammar.record import field, mutable

MOST_BLOCKS = 200
"""The largest depth of nested conditions, loops and functions."""
MOST_VALUES = 12
"""The largest number of values that a message lists for a variable which decides the branch of a condition."""
UNSET = re.compile(r"\$\w+")
ALONE = re.compile(r"\$\w+|\$\{\w+(?::?\?[^}]*)?\}")
"""Matches a word that consists of one variable, such as `$1` or `${SIZE:?}`."""
PLAIN = re.compile(r"[\w./:+-]+")
"""Matches a value without wildcards, such as `7b`."""


@mutable
class Block:
    """An open `if`, `case`, loop, function or `{ ... }` while the script is read.

    - `truth`: whether the current branch runs; None if unknown
    - `settled`: whether an earlier branch certainly ran; `doubtful`: whether an earlier branch may have run
    - `before`: the variables before the first branch; `states`: the variables after each branch that may have run
    - `ended`: whether `exit` or `return` ended the current branch
    - `value`: the word that a `case` compares, or the operator (`&&`, `||`) before the next part of a condition
    - `unset`: whether the condition is `[ -z "$X" ]` for a variable that the script never sets
    - `armed`: whether a pattern of the `case` has been read, so that its commands follow
    - `cause`: the unset variable, such as `$1`, that all conditions of an `if` or a `case` compare; None if one of them
      compares anything else
    - `compared`: the values with which the conditions compare the variable `cause`
    """

    kind: str
    line: int
    before: Variables
    truth: bool | None = True
    settled: bool = False
    doubtful: bool = False
    ended: bool = False
    states: list[Variables] = field(factory=list)
    value: Word | None = None
    unset: bool = False
    armed: bool = False
    cause: str | None = ""
    compared: list[str] = field(factory=list)

    def compare(self, word: Word, values: list[str]) -> None:
        """Record that the current branch runs if an unset variable (`word`) has one of the `values`."""
        plain = UNSET.fullmatch(word.open) is not None and ALONE.fullmatch(word.text) is not None
        self.cause = word.open if plain and self.cause in ("", word.open) else None
        self.compared += [one for one in values if PLAIN.fullmatch(one) and one not in self.compared]

    @property
    def decided(self) -> str:
        """The variable that decides which branch runs, and the values with which the script compares it: `$1 (small,
        7b)`. "" if there is no such variable.
        """
        return f"{self.cause} ({', '.join(self.compared[:MOST_VALUES])})" if self.cause and self.compared else ""


@mutable
class Branches:
    """The variables at the current command (`state`), and the blocks that contain it, from the outermost to the
    innermost.
    """

    state: Variables = field(factory=Variables)
    blocks: list[Block] = field(factory=list)
    unset: str = ""
    """The operator (`&&`, `||`) after which the command runs because the script never sets a variable, as in `[ -z "$X"
    ] && X=5`; otherwise "".
    """
    ended: bool = False
    """Whether the script has ended by `exit`."""

    @property
    def dead(self) -> bool:
        """Whether the current command certainly does not run."""
        return self.ended or any(one.truth is False or one.ended for one in self.blocks)

    def inner(self, base: int) -> Block | None:
        """The innermost open block, unless it is one of the `base` outermost blocks."""
        return self.blocks[-1] if len(self.blocks) > base else None

    def begin(self, block: Block) -> None:
        """Open a block. Raises Unreadable if the nesting is too deep."""
        if len(self.blocks) >= MOST_BLOCKS:
            raise Unreadable(f"it is nested more than {MOST_BLOCKS} levels deep", block.line)
        self.blocks.append(block)

    def group(self, word: Word, link: str, before: bool | None) -> str:
        """Open a group `{ ...; }` after `link` (`&&`, `||` or nothing). `before` says whether the command in front of
        `link` succeeded.
        """
        runs = {"&&": before, "||": None if before is None else not before}.get(link, True)
        if before is None and link and link == self.unset:
            runs = True
        self.begin(Block("group", word.line, self.state.copy(), runs))
        return ""

    def otherwise(self, base: int) -> None:
        """Begin the `else` branch of an `if`."""
        block = self.inner(base)
        if block is not None and block.kind == "if":
            self.close_branch(block)
            block.truth = False if block.settled else None if block.doubtful else True
            block.value = Word("else", 0)

    def close_branch(self, block: Block) -> None:
        """End a branch and restore the variables that were set before the condition. If the branch may have run, its
        variables are kept in `states`.
        """
        if block.truth is not False and not block.ended:
            block.states.append(self.state)
        if block.truth is True and not block.ended:
            block.settled = True
        block.doubtful = block.doubtful or block.truth is None
        block.ended = False
        self.state = block.before.copy()

    def close(self, block: Block, complete: bool) -> None:
        """End an `if`, a `case` or a group. A variable keeps its value only if all branches that may have run give it
        the same value.

        `complete` is true if one of the branches certainly runs, as in an `if` with an `else`.
        """
        ended = block.ended and block.truth is None
        first = block.states[0] if block.states else self.state
        self.close_branch(block)
        states = block.states
        if block.unset and not ended:
            # the condition `[ -z "$X" ]` is true for a variable that is never set, so its branch runs
            self.state = states[0] if states else first
            return
        if not complete and not block.settled:
            states = [*states, block.before.copy()]
        self.state = joined(states, block.before.copy(), block.decided)

    def next_branch(self, base: int) -> None:
        """End the branch of a `case` at `;;`."""
        block = self.inner(base)
        if block is not None and block.kind == "case":
            self.close_branch(block)
            block.truth, block.armed = False, False

    def pending(self, block: Block) -> bool:
        """Whether the condition of an `if` continues after `&&` or `||`."""
        return bool(block.value is not None and block.value.text in ("&&", "||"))

    def condition(self, words: list[Word], ended: str) -> bool | None:
        """Evaluate the condition of an `if`, or a command before `&&` or `||`. Returns whether it succeeds; None if
        this is unknown.
        """
        block = self.blocks[-1]
        truth = False if concerns_unset(words, self.state, "-n") else truth_of(words)
        if self.pending(block) and block.value is not None:
            truth = both(block.truth, truth, block.value.text)
        elif concerns_unset(words, self.state) and not block.doubtful:
            block.unset = True
        if truth is None:
            left, right = compared(words) or (Word("", 0), Word("", 0))
            block.compare(left, [right.text])
        block.truth = truth
        block.value = Word(ended, 0) if ended in ("&&", "||") else None
        return truth

    def arm(self, words: Words) -> None:
        """Read the patterns of the next branch of a `case`, and set whether the branch runs."""
        block = self.blocks[-1]
        patterns, value, block.armed = words.patterns(), block.value, True
        if patterns is None or value is None:
            return
        if block.settled:
            block.truth = False
        elif value.open or "$" in value.text:
            block.truth = None
            block.compare(value, patterns)
        else:
            block.truth = any(fnmatch.fnmatchcase(value.text, one) for one in patterns) and (
                None if block.doubtful else True
            )

    def end(self, how: str, failed: bool = False) -> None:
        """Interpret `exit` and `return`. The later commands of the innermost open branch with an unknown condition are
        skipped or, without such a branch, all later commands of the script.

        A condition under which the script, or a file that it sources, would fail (`exit 1`) is assumed to be false,
        because a script that was used for training did not fail.
        """
        called = next((one.kind for one in reversed(self.blocks) if one.kind in ("function", "source")), "")
        stops = how == "exit" or called == "source"
        for one in reversed(self.blocks):
            if failed and stops and one.kind in ("if", "group", "case"):
                one.ended = True
                return
            if one.kind == called and how == "return":
                one.ended = True
                return
            if one.truth is None:
                one.ended = True
                return
        self.ended = True
