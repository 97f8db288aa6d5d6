"""The advisor: it suggests corrections of wrong names and values when the reader of specs finds them."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler import stacks
from xpc.compiler.language.advisor import Advisor, Suggestion, UnknownName
from xpc.compiler.language.items import Item
from xpc.compiler.language.schema import BY_PATH, CLAUSES, SOURCE_SETTINGS
from xpc.compiler.language.schema import Setting as Row
from xpc.grammar.record import evolve
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Clause, Name, Setting, Value


class Suggestions(Advisor):
    """Answers the reader's questions about wrong names and values. Each method imports only the modules that it
    needs.
    """

    def unknown_name(self, unknown: UnknownName, count: int) -> Suggestion:
        """Suggest the setting that an unknown name probably stands for. If xpc has no such setting, say why."""
        from xpc.compiler.suggest.unknown_names.entry import unknown_name

        return unknown_name(unknown, count)

    def is_known(self, name: str) -> bool:
        """Whether xpc knows a name: as a setting, as another tool's name of a setting, as a name with an entry in the
        tables of advice, or as a name without an equivalent.
        """
        from xpc.compiler.suggest.meaning import is_known

        return is_known(name, loosely=False)

    def missing_value(
        self, row: Row, name: Name, body: Sequence[Setting | Clause | Value], span: Span, source: Source
    ) -> tuple[str, Span, str, str | None]:
        """The finding for a setting without a value: its message, span, help (with an example of a value) and edit.

        If the user wrote a block instead of a value (`rewards { accuracy = 1 }`), the edit is None.
        """
        from xpc.compiler.suggest.legal import example

        message = f"`{name.text}` takes one value, not a block" if body else f"`{name.text}` needs a value"
        if row.path == "hardware" and not body:
            from xpc.compiler.suggest.registry_names import YOUR_GPUS

            return message, name.span, f"{YOUR_GPUS}: `xpc list gpus` prints names", None
        form = f"{name.text}{'' if row.head and not body else ' ='} {example(row)}"
        if body:
            return message, span, f"a value follows `=`, such as `{form}`", None
        return message, name.span, f"write `{form}`", None

    def with_equals(self, path: str, name: str, item: Item) -> tuple[str, str | None]:
        """The help and the edit for a setting without `=`. The edit has a legal value: `attn flash_attention_2` becomes
        `attn=flash2`, and `loss dpo(beta=0.1)` becomes `method dpo(beta=0.1)`.
        """
        from xpc.compiler.language.convert import convert
        from xpc.compiler.language.values import InvalidValue
        from xpc.compiler.suggest.legal import answer

        found = convert(BY_PATH[path], evolve(item, path=path)) if path not in ("", "save.hub") else None
        typed = item.label.source.slice(item.label.span)
        if path == "method.loss" and typed in BY_PATH["method"].choices:
            return f"write `method {typed}`", None
        if not isinstance(found, InvalidValue):
            return super().with_equals(path, name, item)
        answered = answer(found)
        if len(answered.edits) != 1 or answered.edits[0].span != item.label.span:
            return answered.help or "", None
        form = answered.edits[0].text
        form = form if form.partition(" ")[0] in CLAUSES else f"{name}{form}"
        return f"write `{form}`", form

    def length(self, amount: str, word: str) -> tuple[str, str | None]:
        """Advise on the length of a run with an unknown unit, such as `for 500 iters`. Returns a pair: the help, and
        the unit to write instead (None if it is unclear).
        """
        from xpc.compiler.suggest.sentence import length_help

        return length_help(amount, word)

    def joined_value(self, clause: str, parts: Sequence[str]) -> str | None:
        """The legal value for a target or a GPU in several words: `trl 1.16` becomes `trl-1.16`. None if there is no
        such value.
        """
        if clause == "hardware":
            from xpc.compiler.suggest.lines.notations import machines

            forms = machines(" ".join(parts))
            return forms[0] if len(forms) == 1 else None
        joined = "-".join(parts)
        row = BY_PATH.get(clause)
        if row is not None and row.choices and row.kind.name in ("choice", "choices"):
            from xpc.compiler.suggest.known_names import known_choice

            return known_choice(row, " ".join(parts))
        return joined if clause == "target" and joined in stacks.names() else None

    def share_of_rows(self, name: str, value: Value, typed: str) -> str | None:
        """The value of `take` (how many rows to use) for the ratio that another tool's setting states: 0.3 becomes
        `30%`. None if the ratio is impossible.
        """
        from xpc.compiler.suggest.converted_values import converted

        return converted(SOURCE_SETTINGS["take"], name, value, typed)
