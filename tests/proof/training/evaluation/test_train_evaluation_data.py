"""`eval { data = ... }` in real runs: for each method and stack, every named evaluation set is evaluated, and its
losses are right.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from emitted import put
from interpreters import OTHERS, methods_of
from method_runs import DATA, SETTINGS, Trained, Warm, small
from tiers import nightly_but

from xpc.compiler.stacks import DEFAULT, STACKS

pytestmark = pytest.mark.slow

NEAR, FAR = 5, 3
"""The number of rows in each of the two evaluation sets."""
RUNS = [(method, name) for name in STACKS for method in methods_of(name)]
SETS = 'data near_ones {{\n  "near-{0}.jsonl"\n}}\n\neval(every=2, micro=8, data=[near_ones, "far-{0}.jsonl"])'


@pytest.fixture(scope="module")
def held(warm: Warm) -> Warm:
    """The warm interpreters. In their folder, two evaluation files are added to each data file: for `pairs.jsonl`,
    these are `near-pairs.jsonl` (its first rows) and `far-pairs.jsonl` (its last rows).
    """
    for name in {*DATA.values(), "pairs"}:
        with open(os.path.join(warm.location, f"{name}.jsonl"), encoding="utf-8") as handle:
            lines = handle.readlines()
        put(warm.location, {
            f"near-{name}.jsonl": "".join(lines[:NEAR]), f"far-{name}.jsonl": "".join(lines[-FAR:]),
        })  # fmt: skip
    return warm


def trained(warm: Warm, method: str, target: str, cwd: str, name: str, *more: str, strategy: str = "one") -> Trained:
    settings = SETTINGS.get(method, "")
    text = small(f"method {method}{settings}", *more, method=method, target=target, strategy=strategy)
    os.makedirs(cwd, exist_ok=True)
    return warm.train(text, name, target, cwd, 1 if strategy == "one" else 2)


def losses(run: Trained, name: str) -> dict[int, float]:
    return {event["step"]: event[name] for event in run.events if name in event}


@pytest.mark.parametrize(
    ("method", "target"), nightly_but(RUNS, lambda one: one[1] == DEFAULT or one == ("dpo", OTHERS[0]))
)
def test_each_set_is_evaluated_under_its_name(held: Warm, tmp_path: Path, method: str, target: str) -> None:
    run = trained(held, method, target, str(tmp_path), f"sets-{method}-{target}", SETS.format(DATA[method]))
    far = f"far-{DATA[method]}"
    for name in ("near_ones", far):
        found = losses(run, f"eval_{name}_loss")
        assert list(found) == [2, 4], run.events
        assert all(map(math.isfinite, found.values()))
        assert run.summary["evaluation"][f"eval_{name}_loss"] == found[4]
        assert f"({name})" in run.output
    reported = [event for event in run.events if any(key.startswith("eval_") for key in event)]
    assert len(reported) == 4  # each set has a line of its own, without the metrics of the other set
    for event in reported:
        own = [name for name in ("near_ones", far) if f"eval_{name}_loss" in event]
        assert len(own) == 1
        assert all(key.startswith(f"eval_{own[0]}_") for key in event if key.startswith("eval_")), event


LOSS = """
import inspect, json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer

folder, path, only = sys.argv[1:4]
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
losses = []
for line in open(path):
    made = tokenizer.apply_chat_template(
        json.loads(line)["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        logits = model(made["input_ids"]).logits[0, :-1]
    each = torch.nn.functional.cross_entropy(logits, made["input_ids"][0, 1:], reduction="none")
    mask = torch.as_tensor(made["assistant_masks"]).reshape(-1)[1:].bool()
    losses.append(each[mask] if only == "answers" else each)
made = torch.cat(losses)
# transformers 4.57 divides an evaluation's loss by all labels, with the first of each row, which nothing predicts.
source = inspect.getsource(Trainer)
first = "_get_num_items_in_batch([inputs]" in source and "_loss_shifts_labels" not in source
print(json.dumps({"loss": float(made.sum()) / (len(made) + first * len(losses))}))
"""


@pytest.mark.parametrize(
    ("target", "loss", "strategy"),
    nightly_but(
        [*((name, "all", "one") for name in STACKS), (DEFAULT, "answers", "one"), (DEFAULT, "all", "zero2")],
        lambda one: one[0] in (DEFAULT, OTHERS[0]),
    ),
)
def test_the_loss_is_that_of_the_final_weights(
    held: Warm, tmp_path: Path, target: str, loss: str, strategy: str
) -> None:
    """After the last step, each process evaluates one batch. The loss must equal the loss that a plain loop computes
    with the saved weights.
    """
    more = ["method sft(assistant_only)"] if loss == "answers" else []
    sets = SETS.format("messages").replace("near-messages", "even")
    with open(os.path.join(held.location, "messages.jsonl"), encoding="utf-8") as handle:
        put(held.location, {"even.jsonl": "".join(handle.readlines()[:4])})  # each of two processes evaluates two rows
    text = small(*more, sets, method="sft", target=target, strategy=strategy)
    run = held.train(text, f"loss-{loss}-{strategy}-{target}", target, str(tmp_path), 1 if strategy == "one" else 2)
    path = os.path.join(held.location, "even.jsonl")
    (own,) = held.program(target, LOSS, run.out, path, loss)
    assert losses(run, "eval_near_ones_loss")[4] == pytest.approx(own["loss"], abs=2e-5)


ALONE = [("dpo", DEFAULT), *((method, other) for other in OTHERS for method in ("kto", "reward"))]


@pytest.mark.parametrize(("method", "target"), nightly_but(ALONE, lambda one: one[1] != OTHERS[-1]))
def test_one_set_has_the_loss_that_it_has_among_several(held: Warm, tmp_path: Path, method: str, target: str) -> None:
    name = DATA[method]
    several = trained(held, method, target, f"{tmp_path}/a", f"of-two-{method}", SETS.format(name))
    alone = f'eval(every=2, micro=8, data="near-{name}.jsonl")'
    one = trained(held, method, target, f"{tmp_path}/b", f"of-one-{method}", alone)
    assert losses(one, "eval_loss") == pytest.approx(losses(several, "eval_near_ones_loss"), abs=1e-6)


def test_the_best_checkpoint_is_that_of_the_set_that_is_named(held: Warm, tmp_path: Path) -> None:
    name = f"far-{DATA['sft']}"
    best = f'extra trl {{\n  load_best_model_at_end = true\n  metric_for_best_model = "{name}_loss"\n}}'
    text = small(SETS.format(DATA["sft"]), best, method="sft", save='save "out" every=2')
    run = held.train(text, "best-of-set", DEFAULT, str(tmp_path))
    assert losses(run, f"eval_{name}_loss")[4] < losses(run, f"eval_{name}_loss")[2]
    assert "checkpoint-4" in os.listdir(run.out)


def test_a_changed_evaluation_file_stops_the_preflight(held: Warm, tmp_path: Path) -> None:
    text = small(SETS.format(DATA["sft"]), method="sft")
    bundle = held.compiled(text, "changed-evaluation")
    (copy,) = [one for one in os.listdir(os.path.join(bundle, "data")) if one.startswith("far-")]
    with open(os.path.join(bundle, "data", copy), "a", encoding="utf-8") as handle:
        handle.write("\n")
    done = held.launch(bundle, str(tmp_path))
    assert done.done.returncode != 0
    assert "is not the file that this bundle was compiled with" in done.output
