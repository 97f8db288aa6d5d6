"""Cases that are many and look alike: the fast tier takes some, the slow one the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from case_support import Case


def every_fourth(cases: Sequence[Case]) -> list[Any]:
    """All of them as parameters; one in four stays in the fast tier."""
    return [
        pytest.param(case, id=case.title, marks=() if number % 4 == 0 else pytest.mark.slow)
        for number, case in enumerate(cases)
    ]
