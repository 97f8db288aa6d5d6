"""Some methods repeat prompts and shuffle them by TRL's own random generator. If such a run resumes in a later epoch,
it gets the prompts in the same order as an uninterrupted run.

A run has two epochs of two steps each. The run resumes at the start of the second epoch, or within that epoch.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from emitted import put
from method_runs import SETTINGS, Warm, small, tensors

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

PROMPTS = {"grpo": 5, "rloo": 5, "distill": 20}
"""Maps each method to a number of prompts that is enough for two and a half steps. The half step is dropped. A step has
eight sequences: four completions for each of two prompts, or one for each of eight.
"""
DAILY = (("grpo", DEFAULT, "ddp", 3), ("distill", DEFAULT, "one", 2))
NIGHTLY = (
    ("grpo", DEFAULT, "one", 2),
    ("rloo", DEFAULT, "one", 3),
    ("distill", DEFAULT, "ddp", 3),
    *((method, "trl-0.24", "ddp", 3) for method in PROMPTS),
    ("grpo", "trl-0.18", "ddp", 3),
    ("grpo", "trl-0.18", "one", 2),
    ("distill", "trl-0.18", "one", 3),
)


@pytest.mark.parametrize(
    ("method", "target", "strategy", "every"),
    [*DAILY, *(pytest.param(*one, marks=pytest.mark.nightly) for one in NIGHTLY)],
)
def test_a_run_that_resumes_in_its_second_epoch_ends_bit_for_bit_the_same(
    warm: Warm, tmp_path: Path, method: str, target: str, strategy: str, every: int
) -> None:
    name = f"order-{method}-{target}-{strategy}"
    with open(os.path.join(warm.location, "prompts.jsonl"), encoding="utf-8") as handle:
        put(warm.location, {f"{name}.jsonl": "".join(handle.readlines()[: PROMPTS[method]])})
    text = small(
        f"method {method}{SETTINGS[method]}", method=method, target=target, strategy=strategy, data=name,
        save=f'save "out" every={every}',
    )  # fmt: skip
    first, resumed = warm.twice(text, name, target, str(tmp_path), 2 if strategy == "ddp" else 1)
    assert resumed.summary["resumed_from"] == f"checkpoint-{every}"
    for measure in ("loss", "grad_norm", "tokens"):
        assert resumed.values(measure) == first.values(measure)
    weights = [tensors(os.path.join(one.out, "model.safetensors")) for one in (first, resumed)]
    assert weights[0] == weights[1]
