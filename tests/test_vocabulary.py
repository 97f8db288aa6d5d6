"""Functions, classes and modules are named with the usual words of the field. A list has the words that names may not
contain.
"""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from module_folders import folders
from syntax import nodes

pytestmark = pytest.mark.slow

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("compiler", "grammar", "runtime", "tests")
"""The folders with this project's Python code. The names in this code are checked."""
NOT_YET = ()
"""Folders whose names are not checked yet."""
INSTEAD = {
    "told": "reported", "said": "written_as", "asked": "options", "meant": "suggested", "misnamed": "unknown_name",
    "whole": "complete", "steady": "stable", "parting": "shutdown", "left_out": "excluded", "quiet": "irrelevant",
    "behind": "followed_by", "beside": "next_to", "shops": "provider_names", "sides": "operands",
    "ran": "finished_run", "pairs": "changes", "look": "inspect", "scene": "small_run", "harm": "silent_effect",
    "drawn": "generated",
    "fate": "key_outcome", "fates": "outcomes", "judge": "checker", "learnt": "trained", "passedon": "extra_argument",
    "seat": "rendezvous", "speaks": "applies", "standins": "stub_feature", "thinks": "thinking", "ways": "candidates",
    "weighing": "cache_key", "wish": "flag",
}  # fmt: skip
VARIABLES = (
    "told", "said", "asked", "meant", "fate", "judge", "seat", "learnt", "thinks", "wish",
)  # fmt: skip
"""Those keys of INSTEAD that are also refused as names of variables, arguments and fields."""


def modules(folder: str) -> Iterator[str]:
    """The paths of a folder's modules, from the root."""
    for location, _, names in os.walk(os.path.join(ROOT, folder)):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(location, name), ROOT)
            if name.endswith(".py") and not path.startswith(NOT_YET):
                yield path


def names(path: str) -> Iterator[tuple[str, int]]:
    """The name of a module, and the names of its functions and classes, each with its line."""
    yield os.path.basename(path)[:-3], 1
    for node in nodes(os.path.join(ROOT, path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, node.lineno


def variables(path: str) -> Iterator[tuple[str, int]]:
    """The names of the variables, arguments and fields in a module, each with its line."""
    for node in nodes(os.path.join(ROOT, path)):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_are_the_fields_words(folder: str) -> None:
    wrong = [
        f"{path}:{line}: {name}, perhaps {INSTEAD[word]}"
        for path in modules(folder)
        for found, refused in ((names, INSTEAD), (variables, VARIABLES))
        for name, line in found(path)
        if (word := name.strip("_").lower()) in refused
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_that_import_by_their_bare_names_have_each_their_own() -> None:
    counts = Counter(name for folder in folders() for name in os.listdir(folder) if name.endswith(".py"))
    assert {name for name, count in counts.items() if count > 1} <= {"conftest.py"}
