"""The helpers of the fault tests record facts about a run before the test disturbs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

pytestmark = pytest.mark.slow  # fault_runs loads the code that starts runs, which takes seconds


def test_checkpoints_are_noted_before_the_run_starts(tmp_path: Path) -> None:
    """The list of checkpoints is made before the run starts, because a run may delete a checkpoint while a slow test is
    still reading it.
    """
    from fault_runs import Going

    checkpoint = tmp_path / "out" / "checkpoint-3"
    checkpoint.mkdir(parents=True)

    def begin() -> list[int]:
        checkpoint.rmdir()
        return [7]

    going = Going(cast(Any, None), begin, str(tmp_path), str(tmp_path / "said"))
    assert (going.before, going.sound, going.pids) == (["checkpoint-3"], [], [7])
