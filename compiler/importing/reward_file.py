"""The file with the reward functions of a spec. It has the functions of the file of `--rewards`, or stubs."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Overrides
from xpc.compiler.importing.text.entries import Unreadable

USUAL = "rewards.py"
"""The name of the file with the reward functions, next to the spec, if the imported file names only functions."""
HEAD = '"""Reward functions, whose signatures are those of {origin}. Write each before the run."""\n'
Definition = ast.FunctionDef | ast.ClassDef


def definitions(overrides: Overrides) -> list[Definition]:
    """The functions and classes at the top level of the file of `--rewards`. Stubs of an earlier import are omitted."""
    data = overrides.read(overrides.rewards) if overrides.rewards else None
    if data is None:
        return []
    from xpc.compiler.importing.python.interpreter.source import parts

    try:
        found, _ = parts(data.decode("utf-8-sig"), overrides.rewards or "")
    except (Unreadable, UnicodeDecodeError):
        return []
    nodes = [node for part in found for node in part.tree.body]
    return [node for node in nodes if isinstance(node, Definition) and not _is_stub(node)]


def _is_stub(node: Definition) -> bool:
    """Whether a function only raises NotImplementedError. An import with `--partial` writes such functions."""
    body = node.body if isinstance(node, ast.FunctionDef) else []
    return len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.unparse(body[0])


def has_stubs(data: bytes) -> bool:
    """Whether a file of Python has a stub that an earlier import wrote."""
    try:
        return any(isinstance(node, Definition) and _is_stub(node) for node in ast.parse(data).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def given(draft: Draft, overrides: Overrides) -> None:
    """Read the reward functions from the file of `--rewards`: its top-level functions with an argument
    `completions`.
    """
    if overrides.rewards is not None:
        draft.rewards = overrides.rewards
        draft.reward_names = tuple(
            node.name
            for node in definitions(overrides)
            if isinstance(node, ast.FunctionDef)
            and any(one.arg == "completions" for one in (*node.args.args, *node.args.kwonlyargs))
        )


def stubs(functions: Iterable[tuple[str, str, str]], origin: str) -> bytes:
    """The source of a file with stubs of reward functions. Each stub has the name and the parameters of a function,
    states the location of the original, and raises NotImplementedError.
    """
    out = [HEAD.format(origin=origin)]
    for name, parameters, place in functions:
        out.append(f'\ndef {name}({parameters}):\n    raise NotImplementedError("write {name}{place}")\n')
    return "\n".join(out).encode()
