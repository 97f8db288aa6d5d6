"""What the plan itself costs, in time of the processor: a plan under 1 ms, the search for the choices under 10 ms."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from xpc.compiler.files import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.plan import choice
from xpc.compiler.plan.changed import changed
from xpc.compiler.plan.experiment import plan
from xpc.compiler.plan.from_spec import load_of
from xpc.compiler.plan.memory import memory
from xpc.compiler.spec import CheckedSpec

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPEC = "xpc 1\ntrain {} on infinity-instruct:0625 for 1 epochs\nhardware 8 x h100-80gb\n{}\n"
RUNS = [("qwen2.5-3b", "batch gbs=128 seq=4096"), ("llama-3.1-8b-instruct", "lora\nbatch gbs=64"),
        ("gemma-3-1b-it", "batch gbs=64 seq=32768"), ("qwen3-30b-a3b", "batch gbs=2048 seq=512")]  # fmt: skip


def least(work: Callable[[], object], times: int = 40) -> float:
    """Milliseconds of the quickest time: others use the machine, too."""
    took = []
    for _ in range(times):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return 1000 * min(took)


def spec(model: str, more: str) -> CheckedSpec:
    found = check_text(SPEC.format(model, more).encode(), "t.xp", Workspace(ROOT))
    assert found.spec is not None, [one.message for one in found.problems]
    return found.spec


@pytest.mark.parametrize(("model", "more"), RUNS)
def test_the_plan_takes_no_time(model: str, more: str) -> None:
    checked = spec(model, more)
    load = load_of(checked)
    assert not isinstance(load, str)
    assert least(lambda: memory(load)) < 1
    assert least(lambda: plan(checked)) < 1
    asked = changed(checked, {"strategy": "ddp"})  # as before the choice, with every strategy to search
    silent = ("strategy", "memory.checkpointing", "batch.micro")

    def search() -> object:
        choice._searched.clear()  # what one file found is kept for the members of a sweep
        return choice.chosen(asked, silent)

    assert search() is not None
    assert least(search, 10) < 10
