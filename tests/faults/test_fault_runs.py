"""The tests' helpers record facts about a run before they disturb it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

pytestmark = pytest.mark.slow  # importing the runs loads the launcher's support code


def test_checkpoints_are_noted_before_the_run_starts(tmp_path: Path) -> None:
    """Checkpoints are recorded before the start, because a run may delete one while the test reads it on a busy
    machine.
    """
    from fault_runs import Going

    checkpoint = tmp_path / "out" / "checkpoint-3"
    checkpoint.mkdir(parents=True)

    def begin() -> list[int]:
        checkpoint.rmdir()
        return [7]

    going = Going(cast(Any, None), begin, str(tmp_path), str(tmp_path / "said"))
    assert (going.before, going.sound, going.pids) == (["checkpoint-3"], [], [7])
