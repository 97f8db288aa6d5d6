"""Write wrappers for the reward functions of a script into the file of the reward functions.

In a run, reward functions get only the columns of the data. If a script computes further columns for them, `--rewards
FILE` writes a wrapper to FILE that computes these columns and passes them on. A second kind of wrapper calls the reward
function that a function of the script returns, such as `make_reward(0.5)`.
"""

from __future__ import annotations

import ast
import re

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python.data import Data
from xpc.compiler.importing.python.interpreter.functions import BUILTINS
from xpc.compiler.importing.python.interpreter.values import Bound, Column, Function, Instance, Name, Object, Scalar
from xpc.compiler.importing.text.entries import Entry
from xpc.compiler.importing.trl import reward_functions
from xpc.compiler.language.kinds import Weighted

WRAPPER = '''

def _with_columns(reward):
    """The reward function with the columns that the script made of the data's."""

    @functools.wraps(reward)
    def wrapped(prompts, completions, **columns):
        listed = {{name: one for name, one in columns.items() if isinstance(one, list) and len(one) == len(prompts)}}
        rows = [{{name: one[n] for name, one in listed.items()}} for n in range(len(prompts))]
        return reward(prompts=prompts, completions=completions, **{{**columns, {made}}})

    return wrapped
'''


IN_THE_SCRIPT = (
    "only the script's code computes this",
    "`--rewards FILE` writes the functions to a file next to the spec",
)
"""The reason and the help of the error for code that only `--rewards` copies."""


def write(
    draft: Draft, data: Data | None, functions: list[Function], parts: dict[str, str], in_script: bool = False
) -> tuple[str, set[str]]:
    """Write the source of a Python wrapper that computes columns for reward functions.

    Returns the source, and the names of the script that it uses; ("", set()) if there is no column to compute. A column
    that the wrapper cannot compute is an error. `parts` maps the names at the script's top level to their files. With
    `in_script`, nothing is written, and each column that a wrapper could compute is an error that `--rewards` removes.
    """
    made: list[str] = []
    names: set[str] = set()
    for key, (value, location) in ({} if data is None else data.for_rewards).items():
        found = _expression(key, value, data, draft, parts) if functions or in_script else None
        if found is None:
            refuse(draft, key, value, location.entry(f"rows.{key}"))
            continue
        if in_script:
            draft.error(location.entry(f"rows.{key}"), f"the column `{key}`: {IN_THE_SCRIPT[0]}", IN_THE_SCRIPT[1])
            continue
        text, used = found
        made.append(f'"{key}": [{text} for row in rows]')
        names |= used
        draft.note(location.entry(f"rows.{key}"), "the file of the reward functions computes this column")
    if not made:
        return "", set()
    wrapped = "".join(f"\n{one.name} = _with_columns({one.name})" for one in functions)
    return WRAPPER.format(made=", ".join(made)) + "\n" + wrapped + "\n", names


def refuse(draft: Draft, key: str, value: object, location: Entry) -> None:
    """Report an error for a column that a run cannot pass to reward functions."""
    if isinstance(value, Column):
        why = f"reward functions get it under its name in the data, `{value.name}`"
    elif isinstance(value, str | int | float):
        why = f"all rows have the value {str(value)[:40]!r}, which reward functions do not get"
    else:
        why = "the script computes it; in a run, reward functions get the unchanged columns of the data"
    draft.error(location, f"the column `{key}`: {why}", "compute it in the reward function")


def _expression(
    key: str, value: object, data: Data | None, draft: Draft, parts: dict[str, str]
) -> tuple[str, set[str]] | None:
    """Write Python code that computes the column `key` from a row, such as `row["answer"]`. Returns the code, and the
    names of the script that it uses; None if a single expression cannot compute the column.
    """
    prompt = draft.value("data.prompt").strip('"') or "prompt"
    if isinstance(value, Column):
        return (f'row["{value.name}"]', set()) if value.name != prompt else None
    if isinstance(value, str | int | float):
        return repr(value), set()
    function = data.functions.get(key) if data is not None else None
    node = None if function is None else _value(function.node, key)
    if function is None or node is None or not function.node.args.args:
        return None
    row = function.node.args.args[0].arg
    used: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and one.id != row:
            if one.id not in BUILTINS and one.id not in parts:
                return None
            used.add(one.id)
    columns = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    if prompt in columns or key == prompt:
        # a run passes only the finished prompt, not the columns in it, so a wrapper cannot compute this
        return None
    return f"(lambda {row}: {ast.unparse(node)})(row)", used & set(parts)


def _value(node: ast.AST, key: str) -> ast.expr | None:
    """Find the expression for a column in a mapped function: in the dict that the function returns, or in `row[key] =
    ...`.
    """
    if isinstance(node, ast.Lambda):
        tables: list[ast.expr | None] = [node.body]
    else:
        tables = [one.value for one in ast.walk(node) if isinstance(one, ast.Return)]
        for one in ast.walk(node):
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Subscript):
                at = one.targets[0].slice
                if isinstance(at, ast.Constant) and at.value == key:
                    return one.value
    for table in tables if len(tables) == 1 else []:
        if isinstance(table, ast.Dict):
            for name, value in zip(table.keys, table.values):
                if isinstance(name, ast.Constant) and name.value == key:
                    return value
    return None


def called(value: object) -> Function | None:
    """The function of the script that is executed when a reward is called: the function inside `functools.partial`, the
    method `__call__` of an object, or the reward itself. None if it is not in the script.
    """
    if isinstance(value, Bound):
        return value.function if isinstance(value.function, Function) else None
    if isinstance(value, Instance):
        found = next((one.attributes["__call__"] for one in value.kind.lineage() if "__call__" in one.attributes), None)
        return found if isinstance(found, Function) else None
    return value if isinstance(value, Function) else None


def name_of(value: object, taken: list[str]) -> str:
    """A name for a reward function that the script makes at run time. It differs from all names in `taken`."""
    inner = called(value)
    if isinstance(value, Instance):
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", value.kind.name).lower()
    else:
        name = "reward" if inner is None or inner.name in ("lambda", "__call__") else inner.name
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def parameters(value: object) -> ast.arguments:
    """The parameters of a reward function that a trainer passes, without annotations: not `self`, and no parameters
    that `functools.partial` sets.
    """
    inner = called(value)
    assert inner is not None
    plain = ast.parse(f"def f({ast.unparse(inner.node.args)}): pass").body[0]
    assert isinstance(plain, ast.FunctionDef)
    given = plain.args
    if isinstance(value, Instance) or (isinstance(value, Bound) and value.receiver is not None):
        given.args = given.args[1:]
    bound = value.keywords if isinstance(value, Bound) else {}
    first = len(given.args) - len(given.defaults)
    kept = [n for n, one in enumerate(given.args) if one.arg not in bound]
    given.defaults = [given.defaults[n - first] for n in kept if n >= first]
    given.args = [given.args[n] for n in kept]
    pairs = [pair for pair in zip(given.kwonlyargs, given.kw_defaults) if pair[0].arg not in bound]
    given.kwonlyargs, given.kw_defaults = [one for one, _ in pairs], [default for _, default in pairs]
    for each in [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]:
        if each is not None:
            each.annotation = None
    return given


def factory(value: object, statements: list[tuple[str, ast.stmt]]) -> ast.FunctionDef | None:
    """The top-level function of the script that defines this reward function and returns it, such as `make_reward`.
    None if there is none. It must do nothing else, such as training, because the file of the reward functions calls it.
    """
    if not isinstance(value, Function) or len(value.scopes) != 2 or isinstance(value.node, ast.Lambda):
        return None
    for _, node in statements:
        if isinstance(node, ast.FunctionDef) and value.node in ast.walk(node):
            break
        if isinstance(node, ast.FunctionDef) and node.lineno < value.node.lineno <= (node.end_lineno or 0):
            break
    else:
        return None
    own = {id(one) for one in ast.walk(value.node)}
    inside = [one for one in ast.walk(node) if isinstance(one, ast.FunctionDef) and one.name == value.name]
    own |= {id(one) for each in inside for one in ast.walk(each)}
    returns = [one for one in ast.walk(node) if isinstance(one, ast.Return) and id(one) not in own]
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
    given = node.args
    plain = not (given.vararg or given.kwarg or given.posonlyargs or node.decorator_list or len(inside) != 1)
    stays = not names & {one.arg for one in [*given.args, *given.kwonlyargs]}
    right = [ast.unparse(one.value) for one in returns if one.value is not None] == [value.name]
    return node if plain and stays and right and len(returns) == 1 else None


def call(value: Function, made_by: ast.FunctionDef) -> str | None:
    """The source of the call by which the script makes a reward function, such as `make_reward(0.5)` or
    `timed(reward)`. None if an argument is neither a constant nor a function at the script's top level.
    """
    arguments: list[str] = []
    for one in [*made_by.args.args, *made_by.args.kwonlyargs]:
        given = value.scopes[0].get(one.arg)
        top = isinstance(given, Function) and len(given.scopes) == 1
        if one.arg not in value.scopes[0] or not (top or _constant(given)):
            return None
        arguments.append(f"{one.arg}={given.name if isinstance(given, Function) else repr(given)}")
    return f"{made_by.name}({', '.join(arguments)})"


def _constant(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_constant, value))
    if isinstance(value, dict):
        return all(_constant(one) for pair in value.items() for one in pair)
    return isinstance(value, Scalar)


def forwarding(name: str, value: Function, made: str, columns: bool) -> str:
    """The source of a function that calls the reward function which a call in the script, such as `make_reward(0.5)`,
    has returned. It has the parameters of the reward function, and passes their values on; with `columns`, also the
    columns that the script computes.
    """
    given = parameters(value)
    passed = [f"{one.arg}={one.arg}" for one in [*given.args, *given.kwonlyargs]]
    passed = [one.arg for one in given.posonlyargs] + passed
    passed += [f"**{given.kwarg.arg}"] if given.kwarg is not None else []
    return (
        f"\n\n_made_{name} = {made}\n\n\ndef {name}({ast.unparse(given)}):\n"
        f"    return _made_{name}({', '.join(passed)})\n"
    ) + (f"\n\n{name} = _with_columns({name})\n" if columns else "")


def of_trl(draft: Draft, value: object, weight: float | None) -> Weighted | None:
    """The reward function of TRL that a value represents: the script names it, or creates it by a call with constants.
    None for any other value.
    """
    if isinstance(value, Name) and value.path.startswith("trl.rewards.") and value.last not in reward_functions.MAKING:
        return reward_functions.weighted(draft, value.last, weight)
    order = reward_functions.MAKING.get(value.last) if isinstance(value, Object) else None
    if order is None or not isinstance(value, Object) or not value.path.startswith("trl."):
        return None
    given = {**dict(zip(order, value.positional)), **value.keywords}
    arguments = {key: one.value for key, one in given.items()}
    known = all(isinstance(one, int | float | str) for one in arguments.values())
    return reward_functions.weighted(draft, value.last, weight, arguments) if known else None
