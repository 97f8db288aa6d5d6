"""Make pytest parameters for many similar cases. The fast tier runs only some of the cases; slower tiers run the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from case_support import Case
from interpreters import OTHERS

from xpc.compiler.stacks import DEFAULT, STACKS


def every_fourth(cases: Sequence[Any]) -> list[Any]:
    """Pytest parameters for all cases. Only every fourth case runs in the fast tier; all other cases have the mark
    `slow`.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            id=case.title if isinstance(case, Case) else None,
            marks=() if number % 4 == 0 else pytest.mark.slow,
        )
        for number, case in enumerate(cases)
    ]


def slow_but(cases: Iterable[Any], daily: Callable[[Any], bool]) -> list[Any]:
    """Pytest parameters for all cases; those for which ``daily(case)`` is false have the mark `slow`.

    A case that is a tuple becomes one parameter set with several arguments.
    """
    return _marked(cases, daily, pytest.mark.slow)


def nightly_but(cases: Iterable[Any], daily: Callable[[Any], bool]) -> list[Any]:
    """Pytest parameters for all cases; those for which ``daily(case)`` is false have the mark `nightly` (`make slow`).

    A case that is a tuple becomes one parameter set with several arguments.
    """
    return _marked(cases, daily, pytest.mark.nightly)


def _marked(cases: Iterable[Any], daily: Callable[[Any], bool], mark: pytest.MarkDecorator) -> list[Any]:
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=() if daily(case) else mark)
        for case in cases
    ]


def named(runs: Iterable[Any]) -> list[Any]:
    """Pytest parameters for runs. The id of a parameter is the run's name. If a run's `nightly` is true, it gets the
    mark `nightly`.
    """
    return [pytest.param(one, id=one.name, marks=pytest.mark.nightly if one.nightly else ()) for one in runs]


EACH_STACK = nightly_but(STACKS, lambda name: name == DEFAULT)
"""Pytest parameters with the names of all stacks. Every stack except the default one has the mark `nightly`."""

FIRST_AND_LAST = nightly_but(STACKS, lambda name: name in (DEFAULT, OTHERS[0]))
"""Pytest parameters with the names of all stacks. The stacks between the oldest and the default one have the mark
`nightly`: wherever the libraries differ, such a stack behaves either like the oldest or like the default stack.
"""
