"""The rooms (packages) of the compiler have an order, and a room imports only rooms below it. Folders stay small, and
no two files have the same name.
"""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
from syntax import imports

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORDER = (
    "cli", "language_server", "tuning", "explain", "preview", "report", "review", "locking", "commands", "pipeline",
    "importing", "lower", "engines", "rules", "resolve", "suggest", "plan", "data", "spec", "language", "stacks",
    "render", "files", "registry", "grammar",
)  # fmt: skip
"""The rooms in order. A room imports only rooms to its right; CONTRIBUTING.md says what each contains."""
MOST_ROOMS, MOST_LOOSE, MOST_FILES, MOST_LINES, MOST_TESTS = 25, 6, 25, 400, 40


@cache
def files() -> tuple[str, ...]:
    """Every Python file of compiler/ and grammar/, relative to the repository."""
    found = []
    for top in ("compiler", "grammar"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names if name.endswith(".py")]
    return tuple(sorted(found))


def room(path: str) -> str:
    """The room of a file: the folder below compiler/ that contains the file. A file directly in compiler/ is a room
    itself.
    """
    parts = path.removesuffix(".py").split(os.sep)
    return "grammar" if parts[0] == "grammar" else parts[1]


def imported(path: str) -> Iterator[str]:
    """All files that a file imports: at its top, inside functions, and under TYPE_CHECKING."""
    for node in imports(os.path.join(ROOT, path)):
        names = []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            if name.startswith(("xpc.compiler", "xpc.grammar")):
                yield _file(name)


@cache
def _file(name: str) -> str:
    """The file to which a dotted name leads. The last part of the name can be a module, or something that a module
    defines.
    """
    parts, known = name.split(".")[1:], set(files())
    for length in (len(parts), len(parts) - 1):
        stem = os.path.join(*parts[:length])
        for path in (f"{stem}.py", os.path.join(stem, "__init__.py")):
            if path in known:
                return path
    raise AssertionError(f"{name} is not a module of this repository")


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room(path) for path in files()} - {"__init__"} == set(ORDER)
    assert len(ORDER) <= MOST_ROOMS
    assert sum(os.path.isfile(os.path.join(ROOT, "compiler", f"{name}.py")) for name in ORDER) <= MOST_LOOSE


@pytest.mark.parametrize("name", ORDER)
def test_a_room_imports_only_rooms_below_it(name: str) -> None:
    """A room imports only rooms below it. `compiler/__init__.py` has only the package's version: it is in no room, and
    imports nothing.
    """
    above = {*ORDER[: ORDER.index(name)]}
    paths = [path for path in files() if room(path) == name]
    upwards = [f"{path} imports {other}" for path in paths for other in imported(path) if room(other) in above]
    assert paths
    assert not upwards


def test_no_folder_has_more_files_than_one_can_survey() -> None:
    sizes = Counter(os.path.dirname(path) for path in files())
    assert not {folder: size for folder, size in sizes.items() if size > MOST_FILES}


def test_no_folder_of_tests_has_more_files_than_one_can_survey() -> None:
    """Files of all kinds count, also lists that tests read."""
    tests = os.path.join(ROOT, "tests")
    sizes = {folder: len(names) for folder, _, names in os.walk(tests) if not folder.endswith("__pycache__")}
    assert len(sizes) > 40
    assert not {os.path.relpath(folder, ROOT): size for folder, size in sizes.items() if size > MOST_TESTS}


def test_no_file_repeats_the_name_of_its_folder() -> None:
    repeated = [path for path in files() if os.path.basename(os.path.dirname(path)) == os.path.basename(path)[:-3]]
    assert not repeated


@pytest.mark.parametrize("top", ["compiler", "grammar", "runtime"])
def test_no_file_is_longer_than_one_can_survey(top: str) -> None:
    lengths = {}
    for folder, _, names in os.walk(os.path.join(ROOT, top)):
        for path in (os.path.join(folder, name) for name in names if name.endswith(".py")):
            with open(path, "rb") as handle:
                lengths[os.path.relpath(path, ROOT)] = handle.read().count(b"\n")
    assert lengths
    assert not {path: length for path, length in lengths.items() if length > MOST_LINES}


def test_the_readme_of_support_names_each_of_its_modules_and_each_folder_with_support_code() -> None:
    with open(os.path.join(ROOT, "tests", "support", "README.md"), encoding="utf-8") as handle:
        named = set(re.findall(r"[\w/]+", handle.read()))
    for folder, _, names in os.walk(os.path.join(ROOT, "tests")):
        support = [name.removesuffix(".py") for name in names if name.endswith(".py")
                   if not name.startswith(("test_", "conftest", "__init__", "sitecustomize"))]  # fmt: skip
        room = os.path.relpath(folder, os.path.join(ROOT, "tests")).partition(os.sep)[0]
        missing = {*support} if room == "support" else {f"{room}/"} if support and room != "." else set[str]()
        assert missing <= named, folder
