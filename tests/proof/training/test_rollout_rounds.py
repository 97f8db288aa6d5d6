"""If a run is stopped within a round of generated completions and then resumed, it trains on the same completions. It
ends with the same weights as an uninterrupted run.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from interpreters import sharded
from method_runs import KEPT, STEPS, Warm, small, tensors
from tiers import EACH_STACK

from xpc.compiler.stacks import load

pytestmark = pytest.mark.slow
ROUNDS = {"iterations": "iterations=3", "steps_per_generation": "steps_per_generation=6"}
"""Settings with which the completions of one generation round are used for three steps. So the first checkpoint, after
two steps, is in the middle of a round.
"""


@pytest.mark.parametrize("target", EACH_STACK)
@pytest.mark.parametrize(
    ("method", "written", "strategy"),
    [
        ("grpo", "iterations", "one"),
        ("rloo", "steps_per_generation", "one"),
        ("grpo", "iterations", "zero2"),
        ("rloo", "steps_per_generation", "ddp"),
    ],
)
def test_a_resume_within_a_round(
    warm: Warm, tmp_path_factory: pytest.TempPathFactory, method: str, written: str, strategy: str, target: str
) -> None:
    if load(target).refused(method) is not None:
        pytest.skip(f"{target} has no {method}")
    world, strategy = 1 if strategy == "one" else 2, sharded(target, strategy)
    size = ROUNDS[written] if world == 1 else ROUNDS[written].replace("6", "3")  # one micro-batch per process
    more = f'method {method}(rewards="rewards.py:even", generations=4, max_completion=12, beta=0.04, {size})'
    text = small(more, method=method, target=target, strategy=strategy, save=f'save "out" every={KEPT}')
    name = f"round-{target}-{method}-{strategy}"
    done, again = warm.twice(text, name, target, str(tmp_path_factory.mktemp(name)), world)
    assert again.summary["resumed_from"] == f"checkpoint-{KEPT}"
    saved = os.listdir(os.path.join(again.out, f"checkpoint-{KEPT}"))
    assert {f"rollouts_{rank}.pt" for rank in range(world)} <= {*saved}
    assert again.values("loss") == done.values("loss")
    weights: list[Any] = [tensors(os.path.join(one.out, "model.safetensors")) for one in (done, again)]
    assert weights[0] == weights[1]
    assert len(again.events) == STEPS
