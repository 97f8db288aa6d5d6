"""Follow a script from its first line to its last."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xpc.compiler.importing.python.interpreter.expressions import EXPRESSIONS
from xpc.compiler.importing.python.interpreter.functions import is_trainer
from xpc.compiler.importing.python.interpreter.machine import Machine, Semantics
from xpc.compiler.importing.python.interpreter.script_calls import call
from xpc.compiler.importing.python.interpreter.source import Part
from xpc.compiler.importing.python.interpreter.statements import STATEMENTS

SEMANTICS = Semantics(EXPRESSIONS, STATEMENTS, call)


def followed(
    parts: list[Part],
    read: Callable[[str], bytes | None],
    gpu_has_bf16: bool = True,
    given: Mapping[str, str] | None = None,
) -> Machine:
    """The machine after a script, or the cells of a notebook. If it trains nothing, its functions that were not called
    are followed, too. `read` reads the files next to the script, and `given` are arguments of its command line.
    """
    machine = Machine(SEMANTICS, read, gpu_has_bf16, given)
    machine.walk(parts, machine.main)
    if not machine.trained and not any(is_trainer(one.path) for one in machine.calls):
        for one in list(machine.functions):
            if not one.called and one.owner is None and one.label in machine.texts:
                machine.scopes = [machine.main]
                machine.call(one, [], {}, one.node)
    return machine
