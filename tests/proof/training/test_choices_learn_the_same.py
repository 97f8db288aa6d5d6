"""The compiler may choose some settings by memory and speed. None of these settings changes what a run learns. To show
this, the tests train bundles of each method.

With recomputation, or with several tokenizing processes, the weights are bit-identical. With another micro-batch and
the same global batch, the weights differ only because gradients are added in another order. If a method learns from the
micro-batch itself (`Spec.learns_from_micro`), the compiler does not choose the micro-batch by memory.
"""

from __future__ import annotations

import math
import os
import re
from array import array

import pytest
from interpreters import methods_of
from method_runs import ONLINE_SETTINGS, SETTINGS, Warm, small, tensors

from xpc.compiler.files.workspace import Workspace
from xpc.compiler.pipeline import check_text
from xpc.compiler.stacks import STACKS

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

LOSSES = {
    "bnpo": ("grpo", f'(rewards="rewards.py:even", loss=bnpo, {ONLINE_SETTINGS})'),
    "likelihood": ("dpo", "(loss=[sigmoid, sft])"),
}
"""Cases whose loss is a mean over a micro-batch. The losses of orpo and kto are such means, too."""
ONE_LOSS = ("trl-0.18",)
"""The stacks whose dpo accepts only a single loss, not a list of losses."""
ORDER = 2e-5
"""If two runs differ only in the order of their sums, their weights may differ by this much after four steps. For
comparison: with the learning rate of these runs, 1e-3, one step of Adam changes a weight by up to about 1e-3.
"""


def cases(stack: str) -> list[tuple[str, str]]:
    """The cases as pairs of a method and further settings: each method of the stack, and in addition each loss that is
    a mean over a micro-batch.
    """
    plain = [(method, SETTINGS.get(method, "")) for method in methods_of(stack)]
    return plain + [case for name, case in LOSSES.items() if stack not in ONE_LOSS or name != "likelihood"]


def apart(one: str, other: str) -> float:
    """The largest difference between the weights of two runs."""
    first, second = (tensors(os.path.join(path, "model.safetensors")) for path in (one, other))
    assert first.keys() == second.keys()
    pairs = ((array("f", first[name]), array("f", second[name])) for name in first)
    return max(abs(before - after) for pair in pairs for before, after in zip(*pair, strict=True))


@pytest.mark.parametrize(("stack", "method", "settings"), [(stack, *case) for stack in STACKS for case in cases(stack)])
def test_recomputation_and_micro_batches_learn_the_same(
    warm: Warm, tmp_path_factory: pytest.TempPathFactory, stack: str, method: str, settings: str
) -> None:
    left, learns = {}, False
    runs = (("kept", 4, "false"), ("again", 4, "true"), ("smaller", 2, "false"), ("shared out", 4, "false"))
    for name, micro, recomputed in runs:
        text = small(
            f"method {method}{settings}" + ("\ndata(workers=2)" if name == "shared out" else ""),
            method=method,
            target=stack,
            save='save "out" every=never',
        )
        text = re.sub(r"micro=\d+", f"micro={micro}", text)
        text = re.sub(r"memory\(checkpointing(=\w+)?\)", f"memory(checkpointing={recomputed})", text)
        checked = check_text(text.encode(), "t.xp", Workspace(warm.location))
        found = checked.spec
        assert found is not None, [one.message for one in checked.problems]
        assert found.integer("batch.micro") == micro
        learns = found.learns_from_micro
        cwd = str(tmp_path_factory.mktemp(name))
        left[name] = warm.train(text, f"{stack}-{method}-{name}", stack, cwd).out
    assert apart(left["kept"], left["again"]) == 0.0
    assert apart(left["kept"], left["shared out"]) == 0.0
    moved = apart(left["kept"], left["smaller"])
    assert math.isfinite(moved)
    if not learns:
        assert moved < ORDER
