"""If a run learns nothing (for example because no gradient reaches a weight), it reports this on every stack. With
`idle = stop`, it ends.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from method_runs import Warm, small
from tiers import FIRST_AND_LAST

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("target", FIRST_AND_LAST)
def test_masked_completions_are_reported(target: str, warm: Warm, tmp_path: Path) -> None:
    method = 'method grpo(rewards="rewards.py:even", generations=4, max_completion=2, mask_truncated)'
    bundle = warm.compiled(small(method, method="grpo", target=target), f"idle-{target}")
    run = warm.run(bundle, str(tmp_path), target, idle=True)
    assert run.output.count("every completion was cut at 2 tokens and masked; raise `max_completion`") == 1
    assert max(run.values("grad_norm")) == 0


def test_a_rate_of_zero_is_reported(warm: Warm, tmp_path: Path) -> None:
    text = small(method="sft").replace("lr=1e-3", "lr=1e-300")
    run = warm.run(warm.compiled(text, "idle-rate"), str(tmp_path), "trl-1.16", idle=True)
    line = "nothing is learned: over the last 4 logged steps the learning rate was 0, as in all earlier steps"
    assert run.output.count(line) == 1


def test_stop_ends_the_run(warm: Warm, tmp_path: Path) -> None:
    text = small(method="sft").replace("lr=1e-3", "lr=1e-300").replace("precision fp32", "precision fp32(idle=stop)")
    launched = warm.launch(warm.compiled(text, "idle-stop"), str(tmp_path))
    assert launched.done.returncode == 1
    assert "the learning rate was 0" in launched.output
