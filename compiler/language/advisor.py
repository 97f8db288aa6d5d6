"""The interface of advisors, which suggest corrections while a spec is read. For the unknown name `batch_size`, an
advisor suggests `micro`.

The pipeline passes `xpc.compiler.suggest.advisor` to the reader of specs. This advisor is loaded when the first finding
needs a suggestion.
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
    """An unknown name in a spec, with its location and its value.

    `clause` is the clause that contains the name: `save` in `save { evry = 100 }`. It is None if the name is outside of
    clauses. `header` is true if the name stands after `with`. `typed` is the source text of the name's value, cut after
    400 characters.
    """

    name: str
    clause: str | None
    node: Value | None
    typed: str | None
    label: Label
    header: bool = False


@record
class Suggestion:
    """A finding about a name, without its location: the code, the message, the label's text, the help and the edit.

    `edit` is the text for an editor to insert. It replaces the name, and if `replaces_value` is true, also the value.
    `intended` are the paths of the settings that the name probably stands for. `elsewhere` is true if the help moves
    the name out of its clause. `refusing` is the path of a setting that cannot have the written value.
    """

    code: str
    message: str
    text: str = ""
    help: str = ""
    edit: str | None = None
    replaces_value: bool = False
    intended: tuple[str, ...] = ()
    elsewhere: bool = False
    refusing: str = ""


class Advisor:
    """The default advisor. It reports errors without any suggestion."""

    def unknown_name(self, unknown: UnknownName, count: int) -> Suggestion:
        """The finding for an unknown name. `count` is the number of unknown names before this one in the file."""
        return Suggestion(
            "XP101", f"`{unknown.name[:60]}` is not a setting", help="`xpc list settings` prints them all"
        )

    def is_known(self, name: str) -> bool:
        """Whether a name that is not a setting is known from other tools, as `batch_size` is."""
        return False

    def missing_value(
        self, row: Row, name: Name, body: Sequence[Setting | Clause | Value], span: Span, source: Source
    ) -> tuple[str, Span, str, str | None]:
        """For a setting without a value, or with a block in place of a value, return the message, the location, the
        help and the edit.
        """
        return f"`{name.text}` needs a value", name.span, f"write `{name.text} = VALUE`", None

    def with_equals(self, path: str, name: str, item: Item) -> tuple[str, str | None]:
        """For a setting without `=`, such as `lr 1e-5`, return the help and the edit. `name` is `lr=`. The edit is None
        if the value is wrong, and it is unclear what to write instead.
        """
        form = f"{name}{item.label.source.slice(item.label.span)}"
        return f"write `{form}`", form

    def length(self, amount: str, word: str) -> tuple[str, str | None]:
        """For a run's length with an unknown unit, such as `for 500 iters`, return the help and the unit to write
        instead. The unit is None if it is unclear which one the user intended.
        """
        return "write `for 3 epochs` or `for 1000 steps`", None

    def joined_value(self, clause: str, parts: Sequence[str]) -> str | None:
        """The single value that several words probably stand for: `4 x rtx-4090` for `4 x RTX 4090`. None if there is
        no such value.
        """
        return None

    def share_of_rows(self, name: str, value: Value, typed: str) -> str | None:
        """The value of `take` that has the same effect as a setting of another tool, such as `fraction` or `ratio`.
        `name` and `value` are the name and the value of the other tool's setting. None if its effect is unclear.
        """
        return None


GetAdvisor = Callable[[], Advisor]
"""The type of a function that returns the advisor. It is called only for a spec with an error, so that a correct spec
never loads the code for suggestions.
"""
