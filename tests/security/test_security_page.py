"""docs/security.md names tests, codes and pinned versions. All of them exist."""

from __future__ import annotations

import glob
import os
import re
import tomllib

from compile_support import REPOSITORY, read

from xpc.compiler.language.codes import CODES
from xpc.compiler.rules import every
from xpc.compiler.stacks import STACKS
from xpc.grammar.codes import CODES as SYNTAX

PAGE = read("docs", "security.md")


def test_every_test_that_is_named_is_there() -> None:
    there = ""
    for path in glob.glob(os.path.join(REPOSITORY, "tests", "*", "**", "test_*.py"), recursive=True):
        with open(path, encoding="utf-8") as handle:
            there += handle.read()
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 30
    assert not [name for name in sorted(named) if f"def {name}(" not in there]
    assert all(os.path.exists(os.path.join(REPOSITORY, path)) for path in re.findall(r"`(tests/[\w/.]+)`", PAGE))


def test_every_code_that_is_named_is_there() -> None:
    known = {*CODES, *SYNTAX, *(rule.code for rule in every())}
    assert set(re.findall(r"XP\d{3}", PAGE)) <= known


def test_every_stack_pins_a_datasets_without_scripts() -> None:
    for name in STACKS:
        with open(os.path.join(REPOSITORY, "compiler", "stacks", name, "policy.toml"), "rb") as handle:
            pins = str(tomllib.load(handle))
        found = re.search(r"'datasets': '(\d+)\.", pins)
        assert found is not None, name
        assert int(found[1]) >= 4, "datasets 3 still runs scripts of datasets"
