"""The loss of an evaluation is the mean of the batches' mean losses, and not the mean over all tokens. The advisory
`evaluation-by-batch` reports this.
"""

from __future__ import annotations

import json
import os

import pytest
from emitted import put
from method_runs import Warm, small

from xpc.compiler.stacks import STACKS

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


@pytest.mark.parametrize("stack", STACKS)
def test_rows_of_several_lengths_have_another_loss_in_other_batches(
    warm: Warm, tmp_path_factory: pytest.TempPathFactory, stack: str
) -> None:
    with open(os.path.join(warm.location, "messages.jsonl"), encoding="utf-8") as handle:
        rows = [json.loads(line) for line in handle]
    for row in rows[::3]:
        answer = row["messages"][-1]
        answer["content"] = "red blue green " * 6 + answer["content"]
    put(warm.location, {"uneven.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    losses = []
    for micro in (1, 4):
        text = small(
            "data(holdout=8)", f"eval(every=4, micro={micro})",
            method="sft", data="uneven", target=stack, save='save "out" every=never',
        )  # fmt: skip
        cwd = str(tmp_path_factory.mktemp("evaluated"))
        losses += warm.train(text, f"{stack}-evaluated-{micro}", stack, cwd).values("eval_loss")
    assert len(losses) == 2
    assert 1e-3 < abs(losses[0] - losses[1]) < 0.1
