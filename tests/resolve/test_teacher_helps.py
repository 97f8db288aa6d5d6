"""If the compiler does not know enough about a teacher model, its message says which lines to add to the spec."""

from __future__ import annotations

from xpc.compiler.resolve.teacher import _help
from xpc.grammar.diagnostic import Diagnostic


def test_a_teacher_of_which_something_else_is_wrong_keeps_its_help() -> None:
    def help_of(code: str, help: str | None) -> str | None:
        return _help(Diagnostic(code, "slug", "error", "message", help=help))

    assert help_of("XP106", "write `a`, or `b`") == "write `a`, or `b`"
    assert help_of("XP118", "write `a`, or `b`") == "write `a`"
    assert help_of("XP118", None) is None
