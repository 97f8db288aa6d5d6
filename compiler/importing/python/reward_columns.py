"""Handle columns that a script computes for its reward functions. In a run, reward functions get only the columns that
the data itself has.

With `--rewards FILE`, a wrapper in FILE computes these columns from the data's columns and passes them on.
"""

from __future__ import annotations

import ast

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.python.data import Data
from xpc.compiler.importing.python.interpreter.functions import BUILTINS
from xpc.compiler.importing.python.interpreter.values import Column, Function
from xpc.compiler.importing.text.entries import Entry

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


def write(draft: Draft, data: Data | None, functions: list[Function], parts: dict[str, str]) -> tuple[str, set[str]]:
    """Write the Python source of a wrapper that computes columns for reward functions.

    Returns a pair: the source, and the script's names that this source uses. The pair is ("", set()) if no column must
    be computed. Columns that the wrapper cannot compute are errors. `parts` maps the script's top-level names to their
    files.
    """
    made: list[str] = []
    names: set[str] = set()
    for key, (value, location) in ({} if data is None else data.for_rewards).items():
        found = _expression(key, value, data, draft, parts) if functions else None
        if found is None:
            refuse(draft, key, value, Entry(f"rows.{key}", None, location.file, location.line))
            continue
        text, used = found
        made.append(f'"{key}": [{text} for row in rows]')
        names |= used
        draft.note(
            Entry(f"rows.{key}", None, location.file, location.line),
            "the file of the reward functions computes this column",
        )
    if not made:
        return "", set()
    wrapped = "".join(f"\n{one.name} = _with_columns({one.name})" for one in functions)
    return WRAPPER.format(made=", ".join(made)) + "\n" + wrapped + "\n", names


def refuse(draft: Draft, key: str, value: object, location: Entry) -> None:
    """Report an error for a column that a run cannot pass to reward functions."""
    if isinstance(value, Column):
        why = f"reward functions get it as `{value.name}`, the name in the data"
    elif isinstance(value, str | int | float):
        why = f"all rows have the same value, {str(value)[:40]!r}, and reward functions do not get it"
    else:
        why = "the script computes it, and reward functions get the columns as they are in the data"
    draft.error(location, f"the column `{key}`: {why}", "compute it in the reward function")


def _expression(
    key: str, value: object, data: Data | None, draft: Draft, parts: dict[str, str]
) -> tuple[str, set[str]] | None:
    """Returns a pair: the column `key` as the source of an expression over `row`, and the script's names that this
    expression uses. None if the column cannot be written as one expression.
    """
    requested = draft.settings.get("data.prompt")
    prompt = requested.text.strip('"') if requested is not None else "prompt"
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
        return None  # a run passes the prompt itself, and not the column from which it was made
    return f"(lambda {row}: {ast.unparse(node)})(row)", used & set(parts)


def _value(node: ast.AST, key: str) -> ast.expr | None:
    """The expression for a column in a mapped function: from the dict that it returns, or from `row[key] = ...`."""
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
