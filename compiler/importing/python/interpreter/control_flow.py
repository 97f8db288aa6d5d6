"""Interpret the statements that decide what runs: conditions, loops, `with`, `try` and `raise`.

If a condition is known, only its branch is interpreted. Otherwise both branches are interpreted from the same state,
and values that differ afterwards are unknown.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING

from xpc.compiler.importing.python.interpreter import functions
from xpc.compiler.importing.python.interpreter.assignment import assign, mask_prefix
from xpc.compiler.importing.python.interpreter.branches import MISSING
from xpc.compiler.importing.python.interpreter.machine import LOOP, RETURN, STOP, Machine
from xpc.compiler.importing.python.interpreter.operators import truth_of
from xpc.compiler.importing.python.interpreter.parameter_loops import change_parameters
from xpc.compiler.importing.python.interpreter.source import unparsed
from xpc.compiler.importing.python.interpreter.values import Choice, Join, Location, Object, condition

if TYPE_CHECKING:
    from typing import Any


def _if(machine: Machine, node: ast.If) -> str:
    """Interpret an `if` statement. Returns how the surrounding block ends early, such as RETURN, or "" if it
    continues.
    """
    tested = machine.evaluate(node.test)
    truth = truth_of(tested)
    machine.taken_as_empty(tested)
    if truth is None and (_only_removes(node) or _only_shortens(machine, node)):
        truth = True
    if truth is None and not condition(tested):
        truth = machine.assumed_truth(node, unparsed(node.test), tested)
    if truth is None and machine.row_loops and _is_empty_line(node.test):
        # for a condition such as `not line`, the line is assumed to contain text, because an empty line is not a row of
        # data
        truth = not isinstance(node.test, ast.UnaryOp)
    if truth is not None:
        chosen, other = (node.body, node.orelse) if truth else (node.orelse, node.body)
        if not any(isinstance(one, ast.Raise | ast.Expr) for one in chosen):
            return machine.block(chosen)
        with machine.journal.branch() as writes:
            ends = machine.block(chosen)
        if ends == STOP:
            # the chosen branch raises an exception or exits, so it does not train; interpret the other branch instead
            return machine.block(other)
        machine.journal.apply(writes)
        return ends
    return _either(
        machine,
        lambda: machine.block(node.body),
        lambda: machine.block(node.orelse),
        machine.location(node),
        node.test,
        column=condition(tested),
    )


def _only_removes(node: ast.If) -> bool:
    """Whether a branch only removes the columns that its condition tests, as in `if extra: data =
    data.remove_columns(extra)`. It can always be interpreted: if the condition is false, there are no columns to
    remove.
    """
    tested = unparsed(node.test)
    words = {tested, f"list({tested})"}
    if isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.In) and tested.endswith("column_names"):
        one = ast.unparse(node.test.left)
        words |= {one, f"[{one}]"}
    calls = [one.value for one in node.body if isinstance(one, ast.Assign)]
    return not node.orelse and len(calls) == len(node.body) and all(
        isinstance(one, ast.Call)
        and isinstance(one.func, ast.Attribute)
        and one.func.attr == "remove_columns"
        and len(one.args) == 1
        and ast.unparse(one.args[0]) in words
        for one in calls
    )  # fmt: skip


def _only_shortens(machine: Machine, node: ast.If) -> bool:
    """Whether a branch only limits the number of rows to the number in its condition, as in `if len(rows) > n: rows =
    rows.select(range(n))`. It can always be interpreted: if the condition is false, there are at most n rows, and the
    limit keeps them all.
    """
    *others, test = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
    made = [one for one in (*node.body, *node.orelse) if not isinstance(one, ast.Expr)]
    if not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Gt | ast.GtE)) or len(made) != 1:
        return False
    length, most = unparsed(test.left), unparsed(test.comparators[0])
    rows, value = length[4:-1], unparsed(made[0].value) if isinstance(made[0], ast.Assign) else ""
    return (
        length.startswith("len(")
        and made[0] in node.body
        and unparsed(made[0]).startswith((f"{rows} = {rows}.", f"{rows} = {rows}["))
        and value.endswith((f".select(range({most}))", f"[:{most}]"))
        and (not others or isinstance(node.test.op, ast.And))  # type: ignore[attr-defined]
        and all(truth_of(machine.evaluate(one)) for one in others)
    )


def _either(
    machine: Machine,
    one: Callable[[], str],
    other: Callable[[], str],
    location: Location,
    test: ast.expr | None = None,
    hidden: object = None,
    column: str = "",
) -> str:
    """Interpret both branches of a condition with an unknown outcome, and merge their changes.

    `column` is the column of a row that the condition tests for emptiness, or "". Each value that becomes unknown gets
    `hidden`, a known value such as the object of a loop, as its `hidden`.
    """
    before = len(machine.returned[-1]) if machine.returned else 0
    with machine.journal.branch() as first:
        ends = one()
    if ends == RETURN and column and machine.returned and len(machine.returned[-1]) == before + 1:
        machine.returned[-1][before] = Choice(column, machine.returned[-1][before], MISSING)
    with machine.journal.branch() as second:
        other_ends = other()
    if machine.row_loops and LOOP in (ends, other_ends) and ends != other_ends and not _is_empty_line(test):
        machine.filter_rows(location)
    if RETURN in (ends, other_ends) and machine.forks:
        machine.forks[-1].append(location)
    if ends and other_ends:
        return RETURN if RETURN in (ends, other_ends) else ends
    if ends or other_ends:
        machine.journal.apply(second if ends else first)
    else:
        join = Join(location, hidden, column)
        if machine.journal.merge(first, second, join, rows=bool(machine.row_loops)):
            machine.filter_rows(location)
    return ""


def _for(machine: Machine, node: ast.For | ast.AsyncFor) -> str:
    """Interpret a `for` loop. If the items are known, every iteration is interpreted. Otherwise a single iteration is
    interpreted, which may or may not run, like the branch of an unknown condition.
    """
    value = machine.evaluate(node.iter)
    if mask_prefix(machine, node):
        return ""
    items = functions.iterated(value)
    change_parameters(machine, node, value)
    if items is None:
        each = machine.inherited(node.iter, "it depends on a loop over items that are not known", value)
        if machine.assumed_truth(node, f"{ast.unparse(node.target)} in {ast.unparse(node.iter)}"):
            assign(machine, node.target, each)
            return _after_loop(_turn(machine, node))

        def turn() -> str:
            assign(machine, node.target, each)
            return _after_loop(_turn(machine, node))

        return _either(
            machine, turn, lambda: "", machine.location(node), hidden=value if isinstance(value, Object) else None
        )
    rows = [one for one in items if functions.is_row(one)][:1]
    for item in items:
        assign(machine, node.target, item)
        machine.row_loops += rows
        ends = machine.block(node.body)
        del machine.row_loops[len(machine.row_loops) - len(rows) :]
        if ends in (RETURN, STOP):
            return ends
        if ends == f"{LOOP} break":
            return ""
    return machine.block(node.orelse)


def _turn(machine: Machine, node: ast.For | ast.AsyncFor | ast.While) -> str:
    """Interpret one iteration of a loop, which represents all iterations. If it trains with a trainer from outside of
    the loop, record its line in `machine.repeated`, unless the loop may end after this training.
    """
    before = len(machine.calls)
    ends = machine.block(node.body)
    calls = machine.calls[before:]
    if not any(isinstance(one, ast.Break) for one in ast.walk(node)):
        for one in calls:
            trainer = one.receiver if one.last == "train" else None
            if isinstance(trainer, Object) and functions.is_trainer(trainer.path) and not any(
                made.path == trainer.path and made.location == trainer.location for made in calls
            ):  # fmt: skip
                machine.repeated.append(one.location)
    return ends


def _after_loop(ends: str) -> str:
    """How the end of a loop's body (`ends`) affects the block around the loop: a `return` also ends this block; `break`
    and `continue` do not, so the result is "".
    """
    return "" if ends.startswith(LOOP) else ends


def _while(machine: Machine, node: ast.While) -> str:
    """Interpret at most one iteration of a `while` loop. If the condition is unknown, the iteration may or may
    not run.
    """
    truth = truth_of(machine.evaluate(node.test))
    if truth is False:
        return ""
    if truth or machine.assumed_truth(node, unparsed(node.test)):
        return _after_loop(_turn(machine, node))
    return _either(machine, lambda: _after_loop(_turn(machine, node)), lambda: "", machine.location(node))


def _with(machine: Machine, node: ast.With | ast.AsyncWith) -> str:
    """Interpret a `with` statement."""
    for one in node.items:
        value = machine.evaluate(one.context_expr)
        if one.optional_vars is not None:
            assign(machine, one.optional_vars, value)
    return machine.block(node.body)


def _try(machine: Machine, node: ast.Try | ast.TryStar) -> str:
    """Interpret a `try` statement. Handlers of failed imports are ignored, because imports are assumed to succeed;
    `_taken` interprets all others.
    """
    handlers = [one for one in node.handlers if not _imports(one)]
    if not handlers or all(isinstance(one, ast.Import | ast.ImportFrom) for one in node.body):
        ends = machine.block(node.body) or machine.block(node.orelse)
    else:

        def failed() -> str:
            ways = [machine.block(one.body) for one in handlers]
            return "" if "" in ways else ways[0]

        ends = _taken(machine, node, failed)
    return machine.block(node.finalbody) or ends


def _taken(machine: Machine, node: ast.Try | ast.TryStar, failed: Callable[[], str]) -> str:
    """Interpret the body of a `try`. The body is assumed to succeed, unless the script itself raises an exception in
    it.

    If the script would also continue after an exception, but with different values, record the line of the `try` for a
    warning.
    """
    with machine.journal.branch() as body:
        ends = machine.block(node.body) or machine.block(node.orelse)
    returned = len(machine.returned[-1]) if machine.returned else 0
    with machine.journal.branch() as handled:
        other = failed()
    if ends != STOP and machine.returned:
        del machine.returned[-1][returned:]
    if ends == STOP:
        machine.journal.apply(handled)
        return other
    machine.journal.apply(body)
    if handled.old and not other:
        machine.assumed.append(machine.location(node))
    return ends


def _imports(handler: ast.ExceptHandler) -> bool:
    """Whether an `except` clause catches only failed imports and interrupts."""
    names = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return bool(names) and all(
        getattr(one, "id", "") in ("ImportError", "ModuleNotFoundError", "KeyboardInterrupt") for one in names
    )


def _is_empty_line(test: ast.expr | None) -> bool:
    """Whether a condition tests for an empty line: `not line`, `not line.strip()` or `line.strip()`."""
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Attribute) and test.func.attr == "strip":
        test = test.func.value
    return isinstance(test, ast.Name)


def _raise(machine: Machine, node: ast.Raise) -> str:
    """Interpret `raise`, which stops the script. `raise SystemExit(main())` first calls `main`."""
    if isinstance(node.exc, ast.Call) and functions.dotted(node.exc.func) == "SystemExit":
        for one in node.exc.args:
            machine.evaluate(one)
    return STOP


CONTROL_FLOW: dict[type, Callable[[Machine, Any], str | None]] = {
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.Raise: _raise,
    ast.Break: lambda machine, node: f"{LOOP} break",
    ast.Continue: lambda machine, node: LOOP,
}
