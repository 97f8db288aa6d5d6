"""The interface through which the reading of a spec gets suggestions.

The pipeline passes an advisor. Its implementation is `xpc.compiler.suggest.advisor`, which is loaded when a finding
first needs a suggestion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xpc.compiler.language.items import Item
from xpc.compiler.language.setting import Setting as Row
from xpc.grammar.diagnostic import Label
from xpc.grammar.record import record
from xpc.grammar.source import Source, Span
from xpc.grammar.tree import Clause, Name, Setting, Value


@record
class UnknownName:
    """An unknown name in a spec, its place and its value.

    `clause` is None in the body and after `with`; after `with`, `header` is true. `typed` is the text of the value, at
    most 60 characters of it.
    """

    name: str
    clause: str | None
    node: Value | None
    typed: str | None
    label: Label
    header: bool = False


@record
class Suggestion:
    """The parts of a finding about a name, without its place: code, message, text of the label, help and edit.

    The edit replaces the name and, with `replaces_value`, also its value. `intended` are the paths of the settings that
    the name probably means.
    """

    code: str
    message: str
    text: str = ""
    help: str = ""
    edit: str | None = None
    replaces_value: bool = False
    intended: tuple[str, ...] = ()


class Advisor:
    """The default advisor. It reports errors, but suggests nothing."""

    def unknown_name(self, unknown: UnknownName, count: int) -> Suggestion:
        """The finding for a name; `count` is how many unknown names the file had before."""
        return Suggestion(
            "XP101", f"`{unknown.name[:60]}` is not a setting", help="`xpc list settings` prints them all"
        )

    def is_known(self, name: str) -> bool:
        """Whether a name, which is no name of a setting, is known to mean something."""
        return False

    def missing_value(
        self, row: Row, name: Name, body: Sequence[Setting | Clause | Value], span: Span, source: Source
    ) -> tuple[str, Span, str, str | None]:
        """Message, place, help and edit for a setting without a value, or with a block instead of its value."""
        return f"`{name.text}` needs a value", name.span, f"write `{name.text} = VALUE`", None

    def written_value(self, path: str, item: Item) -> str | None:
        """The legal value that a setting's value means, such as flash2 for `flash_attention_2`; None if it is legal
        or not clear.
        """
        return None

    def joined_value(self, clause: str, parts: Sequence[str]) -> str | None:
        """The one value that was written in several words, such as `4 x rtx-4090` for `4 x RTX 4090`; or None."""
        return None

    def share_of_rows(self, name: str, value: Value, typed: str) -> str | None:
        """The value of `take` for a weight of a mixture; `name` is the word that the spec uses for the weight."""
        return None


GetAdvisor = Callable[[], Advisor]
"""A function that returns the advisor. It is called only for a wrong spec."""
