"""The class `CheckedSpec`, an experiment that no rule refuses."""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import ERROR, Diagnostic, Silenced
from xpc.grammar.record import fields, record

ABOUT_THE_TEXT = ("XP125", "XP901", "XP902")
"""Codes of findings that are about a spec's text and not about its run, such as a missing edition line, or a comment
that silences nothing.
"""


@record
class CheckedSpec(Spec):
    """An experiment in which no rule found an error. It is the input of `lower`.

    `problems` are its warnings and notes, and `silenced` are the findings that comments silence. Findings about the
    text of the spec (`ABOUT_THE_TEXT`) are in neither, because the spec in the bundle has another text.
    """

    problems: tuple[Diagnostic, ...] = ()
    silenced: tuple[Silenced, ...] = ()

    @classmethod
    def of(cls, spec: Spec, problems: Sequence[Diagnostic] = (), silenced: Sequence[Silenced] = ()) -> CheckedSpec:
        """Make a checked spec from a spec and its findings. Raises ValueError if one of `problems` is an error."""
        if any(one.severity == ERROR for one in problems):
            raise ValueError(f"{spec.name} has errors")
        return cls(
            **{name: getattr(spec, name) for name in fields(Spec)},
            problems=tuple(one for one in problems if one.code not in ABOUT_THE_TEXT),
            silenced=tuple(one for one in silenced if one.finding.code not in ABOUT_THE_TEXT),
        )
