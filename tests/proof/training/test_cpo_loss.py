"""On every stack, the trainer of cpo computes the loss of a batch by the published formula."""

from __future__ import annotations

import math
import os
from pathlib import Path

import method_runs
import pytest
from emitted import put
from method_runs import Warm
from tiers import EACH_STACK
from tiny_runs import lines, spec

pytestmark = pytest.mark.slow

PROGRAM = '''
import json, os, sys

import torch
from torch.nn.functional import logsigmoid, relu

sys.path.insert(0, sys.argv[1])
from prepared_rows import trainer_of


def of_answer(model, row, name):
    """The sum and the mean of an answer's log-probabilities, and their number."""
    ids, labels = torch.tensor([row[f"{name}_input_ids"]]), torch.tensor(row[f"{name}_labels"])[1:]
    with torch.no_grad():
        logits = model(ids).logits[0, :-1].float()
    learned = labels != -100
    each = logits.log_softmax(-1).gather(1, labels.clamp(min=0)[:, None])[:, 0][learned]
    return each.sum(), each.mean(), int(learned.sum())


for folder in sys.argv[2:]:
    bundle, trainer = trainer_of(os.path.abspath(folder))
    stated, model = bundle.arguments, trainer.model.eval()
    rows = [trainer.train_dataset[at] for at in range(3)]
    batch = trainer.data_collator(rows)
    with torch.no_grad():
        made = float(trainer.compute_loss(model, batch))
    good, bad = ([of_answer(model, row, name) for row in rows] for name in ("chosen", "rejected"))
    average = stated["loss_type"] in ("simpo", "ipo")
    gap = torch.stack([a[average] - b[average] for a, b in zip(good, bad)])
    beta, gamma = stated["beta"], stated["simpo_gamma"]
    losses = {
        "sigmoid": -logsigmoid(beta * gap), "simpo": -logsigmoid(beta * gap - gamma), "hinge": relu(1 - beta * gap),
        "ipo": (gap - 1 / (2 * beta)) ** 2,
    }
    nll = -sum(one[0] for one in good) / sum(one[2] for one in good)
    expected = losses[stated["loss_type"]].mean() + stated["cpo_alpha"] * nll
    print(json.dumps({"made": made, "expected": float(expected)}), flush=True)
'''
LOSSES = (
    "loss=simpo, beta=2, margin=1, likelihood=0", "loss=simpo, beta=2, margin=1", "beta=0.3",
    "loss=hinge, likelihood=0.5",
    "loss=ipo",
)  # fmt: skip


@pytest.mark.parametrize("target", EACH_STACK)
def test_the_loss_of_a_batch_is_that_of_the_formula(warm: Warm, target: str) -> None:
    bundles = [
        warm.compiled(spec(f"method cpo({loss})", data='"preferences.jsonl"', length="1 step", target=target,
                           sizes="gbs=4 micro=4 seq=128"), f"cpo-{target}-{at}")
        for at, loss in enumerate(LOSSES)
    ]  # fmt: skip
    found = warm.program(target, PROGRAM, os.path.dirname(method_runs.__file__), *bundles)
    assert len(found) == len(LOSSES)
    for one in found:
        assert one["made"] == pytest.approx(one["expected"], rel=2e-5)
    assert len({one["made"] for one in found}) == len(LOSSES)


@pytest.mark.parametrize("target", EACH_STACK)
def test_no_pair_loses_an_answer_to_truncation(warm: Warm, tmp_path: Path, target: str) -> None:
    """In trl releases after 0.24 and before 1.16, both answers of a pair lose the same number of tokens: the excess of
    the longer answer. So the shorter answer can become empty (trl#6548). simpo then takes the mean over no tokens,
    which is nan.

    On our stacks, each answer is truncated by itself, so that prompt and answer together have at most `seq` tokens.
    """
    pair = {"prompt": "What colour is it?", "chosen": "It is red.", "rejected": "Blue."}
    put(warm.location, {"longer.jsonl": lines([pair] * 15 + [{**pair, "chosen": "It is red. " * 40}])})
    text = spec("method cpo(loss=simpo, beta=2, margin=1, likelihood=0)", data='"longer.jsonl"', length="4 steps",
                target=target, sizes="gbs=4 micro=4 seq=64")  # fmt: skip
    run = warm.train(text, f"longer-{target}", target, str(tmp_path))
    assert (run.summary["data"]["rows"], run.summary["data"]["left_out"]) == (16, 0)
    assert len(run.values("loss")) == 4
    assert all(map(math.isfinite, run.values("loss")))
