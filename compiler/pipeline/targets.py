"""Check a spec on the target that a help names, before the help is printed.

For example, a model that transformers 5 saved needs the target trl-1.16, and experts can be quantized only on trl-0.24.
If a spec needs both, the help for each error names the other target, and says that the spec has an error there, too.
This module is imported only for a spec with a help that names a target.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from xpc.compiler import stacks
from xpc.grammar.diagnostic import ERROR, Diagnostic
from xpc.grammar.record import evolve

NAMED = re.compile(r"`target ([\w.-]+)`(?! with )")
STATED = re.compile(r"^([ \t]*target[ \t]+)[^\s{]+", re.MULTILINE)


def with_errors_there(
    found: Sequence[Diagnostic], text: str, findings: Callable[[str], Sequence[Diagnostic]]
) -> tuple[Diagnostic, ...]:
    """Extend each help that names a target on which the spec has another error. `findings` is a function that checks a
    text and returns its findings.
    """
    here = {one.code for one in found if one.severity == ERROR}
    there: dict[str, list[Diagnostic]] = {}
    out = []
    for one in found:
        name = next(iter(NAMED.findall(one.help or "")), None)
        if name in stacks.names():
            if name not in there:
                changed, many = STATED.subn(rf"\g<1>{name}", text)
                there[name] = [*findings(changed if many else f"{text.rstrip()}\n\ntarget {name}\n")]
            new = (each for each in there[name] if each.severity == ERROR and each.code not in here - {one.code})
            wrong = next(new, None)
            if wrong is not None:
                one = evolve(one, help=f"{one.help}; on {name}, the spec has the error {wrong.code}: {wrong.message}")
        out.append(one)
    return tuple(out)
