"""Suggestions for the findings of reading a spec."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.language.advisor import Advisor, Suggestion, UnknownName
from xpc.compiler.language.items import Item
from xpc.compiler.language.schema import BY_PATH, SOURCE_SETTINGS
from xpc.compiler.language.schema import Setting as Row
from xpc.grammar.record import evolve
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Clause, Name, Setting, Value


class Suggestions(Advisor):
    """The advisor that suggests what the user probably intended. Each answer loads only the modules that it needs."""

    def unknown_name(self, unknown: UnknownName, count: int) -> Suggestion:
        """The setting that the name probably means, or the reason why xpc has no such setting."""
        from xpc.compiler.suggest.misplaced import unknown_name

        return unknown_name(unknown, count)

    def is_known(self, name: str) -> bool:
        """Whether a name of another tool is known."""
        from xpc.compiler.suggest.meaning import is_known

        return is_known(name, loosely=False)

    def missing_value(
        self, row: Row, name: Name, body: Sequence[Setting | Clause | Value], span: Span, source: Source
    ) -> tuple[str, Span, str, str | None]:
        """A message with an example of the missing value. A block in place of the value gets no edit (`rewards {
        accuracy = 1 }`).
        """
        from xpc.compiler.suggest.example import example

        message = f"`{name.text}` takes one value, not a block" if body else f"`{name.text}` needs a value"
        if row.path == "hardware" and not body:
            help = "write `hardware N x GPU`, with the number and the name of your GPUs: `xpc list gpus` prints them"
            return message, name.span, help, None
        form = f"{name.text}{'' if row.head and not body else ' ='} {example(row)}"
        if body:
            return message, span, f"a value follows `=`, such as `{form}`", None
        return message, name.span, f"write `{form}`", None

    def written_value(self, path: str, item: Item) -> str | None:
        """The value for a setting that is written without `=`: flash2 for `attn flash_attention_2`."""
        from xpc.compiler.language.convert import convert
        from xpc.compiler.language.values import Wrong
        from xpc.compiler.suggest.legal import answer

        found = convert(BY_PATH[path], evolve(item, path=path)) if path in BY_PATH else None
        edits = answer(found).edits if isinstance(found, Wrong) else ()
        return edits[0].text if len(edits) == 1 and edits[0].span == item.label.span else None

    def joined_value(self, clause: str, parts: Sequence[str]) -> str | None:
        """A target or a GPU that was written in several words: `trl 1.16`, `8 x A100 80GB`."""
        from xpc.compiler import registry, stacks

        joined = "-".join(parts)
        count, x, name = joined.rpartition(" x ")
        gpu = registry.find_gpu(name.lower()) if clause == "hardware" else None
        if gpu is not None:
            return f"{count}{x}{gpu.name}"
        return joined if clause == "target" and joined in stacks.names() else None

    def share_of_rows(self, name: str, value: Value, typed: str) -> str | None:
        """The value of `take` for a weight: 30% for a ratio of 0.3."""
        from xpc.compiler.suggest.converted_values import converted

        return converted(SOURCE_SETTINGS["take"], name, value, typed)
