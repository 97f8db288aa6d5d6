"""`make mutants` runs to its end, and its groups cover the source."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import mutants
import pytest
from slow_tests import FURTHER, mirrored_folder, slow_tests

SOURCE = """
from functools import cache


def larger(a, b):
    return a if a > b else b


def increased(a):
    return a + 1


NAMES = ("one", "two")


@cache
def table():
    return {"one": 1}
"""
TESTS = """
import pytest
from grammar.numbers import NAMES, increased, larger, table


def test_larger():
    increased(1)
    assert larger(2, 1) == 2
    assert larger(1, 2) == 2


@pytest.mark.parametrize("name", NAMES)
def test_name(name):
    assert larger(1, 2) and name


@pytest.mark.parametrize("number", range(6))
def test_table(number):
    assert table() and (number < 5 or table() == {"one": 1})
"""


def test_every_file_of_the_source_is_in_one_group() -> None:
    listed = subprocess.run(
        ["git", "ls-files", *(f"{package}/*.py" for package in mutants.PACKAGES)],
        cwd=mutants.REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(name for names in mutants.files().values() for name in names) == sorted(listed.stdout.split())


@pytest.mark.slow
def test_a_copy_of_the_repository_has_the_recipes() -> None:
    copies = mutants.Copies()
    try:
        assert list(Path(copies.folder(), ".mutant", "xpc", "specs").glob("*.xp"))
    finally:
        copies.close()


@pytest.mark.slow
def test_a_line_that_no_test_checks_survives(tmp_path: Path) -> None:
    """The program runs in a small repository: the mutants of the function `larger` are noticed, the mutants of
    `increased` and `NAMES` are not. A mutant of `NAMES` renames or removes a case of `test_name`.
    Of the tests that call the cached function `table`, the last one notices its mutants.
    """
    for name, text in {
        "grammar/numbers.py": SOURCE,
        "compiler/__init__.py": "",
        "runtime/__init__.py": "",
        "tests/grammar/test_numbers.py": TESTS,
        "pytest.ini": "[pytest]\npythonpath = .\nmarkers = slow: unused",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copytree(Path(mutants.__file__).parent, tmp_path / "tests/mutation", ignore=shutil.ignore_patterns("test_*"))
    author = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (["init", "-q"], ["add", "-A"], [*author, "commit", "-q", "-m", "numbers"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    words = [sys.executable, "tests/mutation/mutants.py", "--places", "100", "--since", "2 days ago"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    results = [json.loads(line) for line in (tmp_path / "mutants/results.jsonl").read_text().splitlines()]
    noticed = {one["line"]: one["noticed"] for one in results}
    assert {line for line, by in noticed.items() if by is None} == {10, 13}
    assert "test_numbers.py" in noticed[6]
    assert f"of {len(results)} noticed" in ended.stdout


@pytest.mark.parametrize(
    ("file", "imports", "folder"),
    [
        ("compiler/review/pull_request/causes.py", None, "tests/review"),
        ("compiler/rules/strategy/sharding.py", None, "tests/rules/strategy"),
        ("compiler/cli.py", "tests/cli/test_cli.py", "tests/cli"),
        ("runtime/features/rows/shares.py", "tests/runtime/rows/test_runtime_shares.py", "tests/runtime/rows"),
        ("runtime/core/progress.py", "tests/runtime/test_progress.py", "tests/runtime"),
        ("grammar/format.py", "tests/grammar/test_grammar_format.py", "tests/grammar"),
    ],
)
def test_slow_tests_are_the_importers_and_the_tests_of_the_room(file: str, imports: str | None, folder: str) -> None:
    assert mirrored_folder(file) == [folder]
    found = slow_tests(file)
    assert imports is None or imports in found[: found.index(folder)], found


def test_each_source_file_has_slow_tests_and_each_listed_file_exists() -> None:
    assert not [name for names in mutants.files().values() for name in names if not slow_tests(name)]
    for names in FURTHER.values():
        assert [one for one in names if Path(mutants.REPOSITORY, one).exists()] == [*names]
