"""Each stack is a folder. No code outside of these folders depends on the name of a stack, or lists the stacks.

The test refuses three things: a stack's name where a value is compared (`==`, `!=`, `in`, a key of a mapping, a case of
a match); a list of such names; and, outside of tests, any value that is a stack's name. It allows the line DEFAULT in
compiler/stacks/__init__.py and prose (docstrings, comments, help). A test case may be about one stack, so in tests it
also allows the text of a spec (`target trl-0.18`), a single name as an argument, and a name in an assertion (`assert
payload["target"] == "trl-0.18"`). The recipes' tables, which say on which stacks a publisher's numbers differ, are test
cases, too.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator

import pytest

from xpc.compiler.stacks import HERE, STACKS

pytestmark = pytest.mark.slow

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NAME = re.compile(r"trl[-_.]?\d+[-_.]\d+|TRL_\d+_\d+|\.?venv-\d+\.\d+")
PROGRAMS = ("Makefile", ".ci/run", "pyproject.toml", "specs/quickstart/demo.sh")
CASES = "test_"
"""The names of test files begin with this text. Any other file in tests/ is a helper."""


def files() -> list[str]:
    """Every Python file of the repository by its path, except those in a stack's own folder."""
    out = []
    for top in ("compiler", "grammar", "runtime", "tests"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            if os.path.dirname(folder) != HERE:
                out += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".py")]
    return sorted(out)


def named(node: ast.AST | None) -> bool:
    """Whether a syntax node is the name of an existing stack."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(NAME.fullmatch(node.value))


def expected(tree: ast.AST) -> Iterator[ast.AST]:
    """The expressions that a file asserts. Conditions inside these expressions are left out: a test must not use a
    stack's name as a condition.
    """
    for one in (one.test for one in ast.walk(tree) if isinstance(one, ast.Assert)):
        requested = {id(part) for node in ast.walk(one) if isinstance(node, ast.IfExp) for part in ast.walk(node.test)}
        yield from (part for part in ast.walk(one) if id(part) not in requested)


def compared(tree: ast.AST, asserted: bool) -> Iterator[ast.AST]:
    """The places at which a stack's name is compared, used as a key, or listed. If assertions are allowed, places in
    them are left out.
    """
    reported = set(map(id, expected(tree))) if asserted else set()
    for node in (one for one in ast.walk(tree) if id(one) not in reported):
        match node:
            case ast.Compare():
                yield from (one for one in (node.left, *node.comparators) if named(one))
                yield from (
                    one
                    for side in node.comparators
                    if isinstance(side, ast.Tuple | ast.List | ast.Set)
                    for one in side.elts
                    if named(one)
                )
            case ast.Dict():
                yield from (one for one in node.keys if named(one))
            case ast.MatchValue():
                yield from (one for one in (node.value,) if named(one))
            case ast.Subscript():
                yield from (one for one in (node.slice,) if named(one))
            case ast.Tuple() | ast.List() | ast.Set():
                if sum(map(named, node.elts)) > 1:
                    yield node


def names(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every value that is a stack's name, except the value that sets the default stack."""
    default = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == ["DEFAULT"]
    }
    yield from (node for node in ast.walk(tree) if named(node) and id(node) not in default)


def wrong(path: str, text: str) -> list[str]:
    """The places in a file at which a stack's name is used, but must not be."""
    if not NAME.search(text):
        return []
    tree = ast.parse(text)
    case = path.startswith("tests") and (os.path.basename(path).startswith(CASES) or "/violations/" in path)
    found = compared(tree, True) if case else [*compared(tree, False), *names(tree)]
    return sorted({f"{path}:{getattr(one, 'lineno', 0)}" for one in found})


@pytest.mark.parametrize("top", ["compiler", "grammar", "runtime", "tests"])
def test_no_source_asks_for_a_stack_by_its_name(top: str) -> None:
    found: list[str] = []
    for path in files():
        if path.startswith(top + os.sep):
            with open(os.path.join(ROOT, path), encoding="utf-8") as handle:
                found += wrong(path, handle.read())
    assert not found, f"compares the name of a stack; use stacks.names(), DEFAULT or a fact instead: {', '.join(found)}"


@pytest.mark.parametrize("path", PROGRAMS)
def test_no_program_names_a_stack(path: str) -> None:
    with open(os.path.join(ROOT, path), encoding="utf-8") as handle:
        lines = [line.partition("#")[0] for line in handle]
    assert [line for line in lines if NAME.search(line)] == []


def test_what_the_reader_finds() -> None:
    seen = (
        "def f(x):\n    if x.stack.name == 'trl-1.16': pass\n    y = {'trl-0.18': 1}\n    return x in ('trl-0.18',)\n"
    )
    assert wrong("compiler/a.py", seen) == ["compiler/a.py:2", "compiler/a.py:3", "compiler/a.py:4"]
    assert wrong("compiler/a.py", "'''On trl-0.18 it fails.'''\nDEFAULT = 'trl-1.16'\n") == []
    assert wrong("tests/helper.py", "OLD = 'trl-0.18'\n") == ["tests/helper.py:1"]
    assert wrong("tests/test_a.py", "a(target='trl-0.18', text='target trl-0.18')\n") == []
    assert wrong("tests/test_a.py", "assert f() == 'trl-0.18'\n") == []
    assert wrong("tests/test_a.py", "assert b == (1 if a == 'trl-0.18' else 2)\n") == ["tests/test_a.py:1"]
    assert wrong("tests/test_a.py", "if a == 'trl-0.18': assert b\n") == ["tests/test_a.py:1"]
    assert wrong("tests/test_a.py", "BOTH = ['trl-0.18', 'trl-1.16']\n") == ["tests/test_a.py:1"]
    assert all(NAME.fullmatch(one) for one in STACKS)
