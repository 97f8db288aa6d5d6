"""Cases that are many and look alike: a tier takes some, the next slower one the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from case_support import Case

from xpc.compiler.stacks import DEFAULT, STACKS


def every_fourth(cases: Sequence[Case]) -> list[Any]:
    """All of them as parameters; one in four stays in the fast tier."""
    return [
        pytest.param(case, id=case.title, marks=() if number % 4 == 0 else pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def nightly_but(cases: Iterable[Any], daily: Callable[[Any], bool]) -> list[Any]:
    """All of them as parameters (a tuple is one of several names); only `make slow` tries those that are not daily."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if daily(case) else pytest.mark.nightly)
        for case in cases
    ]


def named(runs: Iterable[Any]) -> list[Any]:
    """Runs as parameters, by their names; `make slow` tries those that are `nightly`."""
    return [pytest.param(one, id=one.name, marks=pytest.mark.nightly if one.nightly else ()) for one in runs]


EACH_STACK = nightly_but(STACKS, lambda name: name == DEFAULT)
"""Names of stacks, where the older ones are nightly."""
