"""The class `Case`, an unknown name with its context, and the function `first_answer`, which calls several functions
until one returns a suggestion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TypeVar

from xpc.compiler.language import schema
from xpc.compiler.language.advisor import Suggestion, UnknownName
from xpc.compiler.suggest.likeness import parts
from xpc.compiler.suggest.meaning import SAME, Meaning
from xpc.compiler.suggest.tables import words_of
from xpc.grammar.record import record
from xpc.grammar.tree import Value

REFERENCE = "no setting has a similar name; `xpc list settings` prints them all"


@record
class Case:
    """An unknown name, and the setting that it probably stands for (`guess`), if one is found."""

    unknown: UnknownName
    guess: Meaning | None = None

    @property
    def name(self) -> str:
        """The unknown name itself: `evry` in `save { evry = 100 }`."""
        return self.unknown.name

    @property
    def clause(self) -> str:
        """The clause that contains the name: `save` in `save { evry = 100 }`. "" outside of clauses."""
        return self.unknown.clause or ""

    @property
    def node(self) -> Value | None:
        """The value of the name: the number 100 in `save { evry = 100 }`. None if the name has no value."""
        return self.unknown.node

    @property
    def typed(self) -> str:
        """The source text of the value: `100` in `save { evry = 100 }`. "" if the name has no value."""
        return self.unknown.typed or ""

    @property
    def exact(self) -> bool:
        """Whether the guessed setting has the same words as the unknown name (true), or is only spelled similarly
        (false). False if there is no guess.
        """
        return self.guess is not None and self.guess.likeness >= SAME

    @cached_property
    def message(self) -> str:
        """The message of most findings: "`evry` is not a setting of `save`"."""
        return f"`{self.name[:60]}` is not a setting of " + (f"`{self.clause}`" if self.clause else "the language")

    def says(self, help: str, text: str = "", code: str = "XP101") -> Suggestion:
        """Make a suggestion that only explains (`help`), without an edit."""
        return Suggestion(code, self.message, text, help)

    def suggests(
        self, form: str, edit: str | None = None, inside: bool = False, replaces_value: bool = True
    ) -> Suggestion:
        """Suggest to write the text `form`. The suggestion has an edit if the text is legal at the place of the unknown
        name.
        """
        outside = f" outside of `{self.clause}`" if self.clause and not inside else ""
        edit = None if edit is None or outside else form
        text, help = f"did you mean `{form}`?", f"write `{form}`{outside}"
        return Suggestion("XP101", self.message, text, help, edit, replaces_value, elsewhere=bool(outside))


SomeCase = TypeVar("SomeCase", bound=Case)


def first_answer(case: SomeCase, steps: Iterable[Callable[[SomeCase], Suggestion | None]]) -> Suggestion | None:
    """Call the functions in `steps` one after another until one returns a suggestion. None if no function returns
    one.
    """
    return next((found for step in steps if (found := step(case)) is not None), None)


def denied(name: str) -> str:
    """What a name denies: `packing` for `no_packing` and `packing_off`. "" if the name denies nothing."""
    written = [word for word in parts(name[:80]) if word != "do"]
    if not {"than", "short", "long"}.isdisjoint(written):
        return ""  # `drop_rows_longer_than` is a limit
    if len(written) > 1 and written[0] in words_of("denying"):
        return "_".join(written[1:])
    return "_".join(written[:-1]) if len(written) > 1 and written[-1] in ("off", "disabled") else ""


def is_in(path: str, clause: str) -> bool:
    """Whether a setting belongs to a clause directly, and not to a block inside it."""
    return path.rpartition(".")[0] == clause


def settings_of(clause: str) -> str:
    """A phrase with the first twelve settings of a clause. If the clause has no settings, or if `clause` is empty, the
    phrase says where the settings are listed.
    """
    names = [row.name for row in schema.children(clause)] if clause else []
    return f"`{clause}` has {', '.join(names[:12])}" if names else REFERENCE
