"""Report keywords in wrong positions. The parser accepts some of them. For example, it reads `for` after `with` as a
name.
"""

from __future__ import annotations

import re
from itertools import zip_longest

from xpc.grammar import codes
from xpc.grammar.codes import Code
from xpc.grammar.diagnostic import ERROR, Diagnostic, Edit, Label
from xpc.grammar.nearest import nearest
from xpc.grammar.record import evolve
from xpc.grammar.source import Span
from xpc.grammar.tree import Block, Budget, Call, Clause, Count, File, Name, Number, Ref, Setting, String, Train, Value

WORDS = frozenset({"train", "on", "for", "with", "extends", "x", "xpc"})
VERBS = ("train", "finetune", "fine-tune", "pretrain", "tune", "fit", "learn", "run")
"""Verbs that people write at the beginning of the first line instead of `train`."""
_BELONGS = {
    "on": "`on` belongs to the sentence: train MODEL on DATA",
    "for": "`for` belongs to the sentence: train MODEL on DATA for 3 epochs",
    "with": "`with` belongs to the sentence; here settings go into a block or a call",
    "x": "`x` stands between a number and a name: 8 x h100-80gb",
    "train": "a specification has one sentence, on its own line before the clauses",
    "extends": 'extends "base.xp" stands on its own line before `train`',
    "xpc": "`xpc 1` is the first line",
}


def check(file: File) -> tuple[File, tuple[Diagnostic, ...]]:
    """Check a parsed file. Returns a pair: the file without its misplaced parts, and the findings. A length after
    `with`, as in `with zero2 for 3 epochs`, becomes the length of the run.
    """
    checker = _Checker(file)
    return checker.run(), tuple(checker.diagnostics)


class _Checker:
    def __init__(self, file: File) -> None:
        self.file = file
        self.diagnostics: list[Diagnostic] = []
        self._written = 0
        self._late: Span | None = None

    def _error(
        self,
        code: Code,
        span: Span,
        message: str,
        remedy: str,
        related: tuple[Label, ...] = (),
        edits: tuple[Edit, ...] = (),
    ) -> None:
        label = Label(self.file.source, span)
        self.diagnostics.append(Diagnostic(code.code, code.slug, ERROR, message, label, related, remedy, edits))

    def run(self) -> File:
        file = self.file
        edition = file.edition
        if edition is not None and (edition.value != 1 or edition.unit is not None):
            self._error(
                codes.UNKNOWN_EDITION,
                edition.span,
                f"this compiler does not know edition {edition.text}",
                "write `xpc 1`",
            )
        train = None if file.train is None else self._train(file.train)
        return evolve(file, train=train, statements=self._statements(file.statements))

    def _train(self, train: Train) -> Train:
        for location, value in (("model", train.model), ("dataset", train.data)):
            if _word(value) is not None:
                remedy = "write `train MODEL on DATA`"
                self._error(
                    codes.RESERVED_WORD, value.span, f"expected a {location}, found the word `{_word(value)}`", remedy
                )
        for at, option in enumerate(train.options):
            if _word(option) == "for":
                return self._late_budget(train, at)
        for option, following in zip_longest(train.options, train.options[1:]):
            word = _word(option)
            if word == "with":
                self._error(
                    codes.RESERVED_WORD,
                    option.span,
                    "a second `with`",
                    "one `with` introduces all choices and settings",
                )
            elif word == "on" and isinstance(following, Count):
                hardware = self.file.source.slice(following.span)
                span = Span(option.span.start, following.span.end)
                edits = (Edit(span, hardware),)
                self._error(
                    codes.RESERVED_WORD, option.span, "hardware has no `on`", f"write `{hardware}`", edits=edits
                )
            else:
                self._operand(option)
        return evolve(train, options=_without_words(train.options))

    def _late_budget(self, train: Train, at: int) -> Train:
        """Report a length that stands after `with`, as in `with zero2 for 3 epochs`. The help contains the corrected
        line. Returns a tree in which the length stands before `with`.
        """
        amount, unit = (*train.options[at + 1 : at + 3], None, None)[:2]
        word = train.options[at]
        recovered = not self.file.source.slice(train.span).startswith("train")  # the model or the data is missing
        if recovered or not isinstance(amount, Number) or not isinstance(unit, Ref) or not unit.is_name:
            self._error(
                codes.MISPLACED_BUDGET, word.span, "the length goes before `with`", "train M on D for 3 epochs with ..."
            )
            return evolve(train, options=train.options[:at])
        options = train.options[:at] + train.options[at + 3 :]
        span = Span(word.span.start, unit.span.end)
        head = f"train {self.file.source.slice(train.model.span)} on {self.file.source.slice(train.data.span)}"
        tail = " with " + " ".join(self.file.source.slice(option.span) for option in options) if options else ""
        if train.budget is not None:
            related = (Label(self.file.source, train.budget.span, "the first one"),)
            self._error(codes.MISPLACED_BUDGET, span, "a second budget", "the sentence has one", related)
        else:
            sentence = f"{head} {self.file.source.slice(span)}{tail}"
            edits = (Edit(train.span, sentence),)
            label = Label(self.file.source, span)
            code = codes.MISPLACED_BUDGET
            remedy = f"write `{sentence}`"
            # the edit replaces the complete line, and the finding is only about a part of it
            self.diagnostics.append(
                Diagnostic(
                    code.code, code.slug, ERROR, "the length goes before `with`", label, help=remedy, edits=edits
                )
            )
        budget = train.budget or Budget(span, amount, Name(unit.span, unit.name))
        return self._train(evolve(train, budget=budget, options=options))

    def _statements(self, statements: tuple[Setting | Clause, ...]) -> tuple[Setting | Clause, ...]:
        return tuple(kept for kept in (self._statement(each) for each in statements) if kept is not None)

    def _statement(self, statement: Setting | Clause) -> Setting | Clause | None:
        if isinstance(statement, Setting):
            self._operand(statement)
            return statement
        word = _word(statement.head)
        if word is None and self._another_verb(statement):
            return None
        block = statement.block
        if block is not None:
            self._one_line(block)
            block = Block(block.span, self._statements(block.statements))
        if word is not None:
            self._misplaced(word, statement)
            return None
        for operand in statement.operands:
            self._operand(operand)
        if isinstance(statement.head, Call):
            self._operand(statement.head)
        return evolve(statement, operands=_without_words(statement.operands), block=block)

    def _another_verb(self, clause: Clause) -> bool:
        """Report a first line that does not begin with `train`, such as `finetune MODEL on DATA with lora` or `MODEL on
        DATA`. If the first word may be a choice, such as `dpo`, no edit is suggested.
        """
        first, second = (*map(_word, clause.operands), None, None)[:2]
        if self.file.train is not None or "on" not in (first, second):
            return False

        verb, written = clause.head, self.file.source.slice
        typed, message, also = written(verb.span)[:60], "the sentence begins with `train`", ""
        rest = Span(verb.span.start if first == "on" else clause.operands[0].span.start, clause.span.end)
        edits: tuple[Edit, ...] = ()
        if first == "on":
            edits = (Edit(Span(verb.span.start, verb.span.start), "train "),)
        else:
            message += f", not with `{typed}`"
            if nearest(typed, VERBS) is not None:
                edits = (Edit(verb.span, "train"),)
            else:
                also = f"; if `{typed}` is a choice, write it after `with`"
        help = f"write `train {written(rest)}`{also}"
        self._error(codes.INCOMPLETE_SENTENCE, verb.span, message, help, edits=edits)
        return True

    def _one_line(self, block: Block) -> None:
        """Report a one-line block that does not end on its line, because a list in it has several lines. Of nested
        blocks, only the outermost is reported.
        """
        start, end = block.span.start, block.span.end
        if start < self._written or not block.statements or "\n" not in self.file.source.slice(block.span):
            return
        if "\n" in self.file.source.slice(Span(start, block.statements[0].span.start)):
            return
        # imported here, because few specs have a one-line block that does not end on its line
        from xpc.grammar.oneline import ENDS_ON_ITS_LINE, written_out

        self._written = end
        edits = written_out(self.file.source.text, start, len(self.file.source.text))
        self._error(codes.ONE_LINE_BLOCK, Span(start, start + 1), *ENDS_ON_ITS_LINE, edits=edits)

    def _misplaced(self, word: str, clause: Clause) -> None:
        file, span = self.file, clause.head.span
        if word == "train":
            self._late_sentence(clause)
        elif word == "extends" and file.extends is not None:
            related = (Label(file.source, file.extends.span, "the first one"),)
            remedy = "a specification has one base"
            self._error(codes.MISPLACED_EXTENDS, span, "a second `extends`", remedy, related)
        elif word == "extends":
            self._error(codes.MISPLACED_EXTENDS, span, "`extends` comes before `train` and the clauses", "move it up")
        elif word == "xpc":
            remedy = "move it to the first line, or delete it"
            self._error(codes.MISPLACED_EDITION, span, "`xpc` is not on the first line", remedy)
        else:
            remedy = "the sentence is one line: write it after `train`" if word != "x" else _BELONGS["x"]
            self._error(codes.RESERVED_WORD, span, f"a statement cannot begin with `{word}`", remedy)

    def _late_sentence(self, clause: Clause) -> None:
        """Report a `train` below other clauses: it has a block, is the second one, or stands in the wrong place."""
        file, span = self.file, clause.head.span
        inside = clause.head.args if isinstance(clause.head, Call) else clause.body
        first = self._late if file.train is None else file.train.span
        if inside and isinstance(inside[0], Setting):
            typed = file.source.slice(inside[0].span)
            remedy = f"write `{typed}` on a line of its own: `train` is the sentence, and has no block"
            if counted := re.fullmatch(r"(steps|epochs)\s*[=\s]\s*(\d+)", typed):
                form = f"for {counted[2]} {counted[1]}"
                remedy = f"write `{form}` in the first line: `train` is a sentence, without a block"
            self._error(codes.SECOND_SENTENCE, span, "`train` has no block", remedy)
        elif first is not None:
            related = (Label(file.source, first, "the first one"),)
            remedy = "a specification describes one run"
            self._error(codes.SECOND_SENTENCE, span, "a second `train` sentence", remedy, related)
        else:
            self._late = span
            remedy = "move it above the clauses, outside of every block"
            self._error(codes.SECOND_SENTENCE, span, "the `train` sentence comes first", remedy)

    def _operand(self, operand: Setting | Value) -> None:
        name = operand.name if isinstance(operand, (Setting, Call)) else None
        word = _word(operand) if name is None else name.text
        # a setting with a name such as `on` is unknown, and reported so
        if word in WORDS and not (isinstance(operand, Setting) and word in ("on", "for", "with")):
            span, remedy = operand.span if name is None else name.span, _BELONGS[word]
            if word == "train" and isinstance(operand, Setting) and isinstance(operand.value, String):
                typed = self.file.source.slice(operand.value.span)
                remedy = f"name the data to train on in the sentence: `train MODEL on {typed}`"
            self._error(codes.RESERVED_WORD, span, f"`{word}` is a word of the language and names nothing else", remedy)
        if isinstance(operand, Call):
            for argument in operand.args:
                # a value in parentheses may be any word, so only names of settings and of calls can be keywords in a
                # wrong position
                if isinstance(argument, (Setting, Call)):
                    self._operand(argument)
        elif isinstance(operand, Setting) and isinstance(operand.value, Call):
            self._operand(operand.value)


def _without_words(operands: tuple[Setting | Value, ...]) -> tuple[Setting | Value, ...]:
    """Return the operands without keywords, which are already reported as errors."""
    return tuple(operand for operand in operands if _word(operand) is None)


def _word(value: object) -> str | None:
    if isinstance(value, Ref) and value.is_name and value.name in WORDS:
        return value.name
    if isinstance(value, Call) and value.name.text in WORDS:
        return value.name.text
    return None
