"""A run resumes with another number of processes than before: it trains on the same rows in the same order. Losses
differ only by rounding, because sums have another order.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from glob import glob
from pathlib import Path

import pytest
from emitted import put
from fault_runs import Runs, result, text
from interpreters import OTHERS
from process_groups import together
from stacks import interpreter, payload
from tiers import EACH_STACK

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow

BOUND = 1e-4
"""Two losses may have at most this relative difference. It comes from sums of 8 rows in float32 in another order, over
14 steps.
"""


def chained(here: Runs, source: Callable[[int], str], worlds: list[int], folder: str, name: str) -> None:
    """Run a bundle several times in the same output folder, each time with another number of processes. The first run
    is killed, each following one is stopped, and the last one finishes. Compare its result with a run that was not
    interrupted and has the first number of processes.
    """
    still(here)
    bundles = [here.compiled(source(world), f"{name}-{world}") for world in worlds]
    if refused := payload(bundles[0])["run"]["division"]["step"]:
        pytest.skip(f"refused: {refused}")
    alone, cwd = os.path.join(folder, "alone"), os.path.join(folder, "chain")
    here.start(bundles[0], alone, "recorded.py").wait()
    expected = result(os.path.join(alone, "out"))
    rows = recorded(alone)
    found: dict[int, list[str]] = {}
    for number, bundle in enumerate(bundles):
        going = here.start(bundle, cwd, "recorded.py")
        if number < len(bundles) - 1:
            going.until_step(6 + 4 * number)
            going.send(signal.SIGTERM if number else signal.SIGKILL)
        status = going.wait()
        assert number < len(bundles) - 1 or not any(status), going.text
        found.update(recorded(cwd))
        for path in glob(os.path.join(cwd, "rows-*.jsonl")):
            os.remove(path)
        if number:
            reported = f"now; the run began with {worlds[0]} process(es)" in going.text
            assert reported is (worlds[number] != worlds[0]), going.text
            assert "resuming from checkpoint-" in going.text, going.text
    assert found == rows
    got = result(os.path.join(cwd, "out"))
    assert [one["step"] for one in got["events"]] == [one["step"] for one in expected["events"]]
    worst = 0.0
    for one, other in zip(got["events"], expected["events"], strict=True):
        worst = max(worst, abs(one["loss"] - other["loss"]) / abs(other["loss"]))
        assert (one["lr"], one["epoch"]) == (other["lr"], other["epoch"])
        assert one.get("tokens") == other.get("tokens")
    print(f"{name}: {worst:.1e}")
    assert worst < BOUND
    assert got["sequences"] == expected["sequences"]
    assert furthest(os.path.join(cwd, "out"), os.path.join(alone, "out")) < 1e-5


def furthest(one: str, other: str) -> float:
    """The largest absolute difference between the weights of two runs."""
    from safetensors.torch import load_file

    (name,) = (name for name in os.listdir(one) if name.endswith(".safetensors"))
    weights, others = (load_file(os.path.join(out, name)) for out in (one, other))
    assert weights.keys() == others.keys()
    return max(float((weights[key] - others[key]).abs().max()) for key in weights)


def recorded(cwd: str) -> dict[int, list[str]]:
    """The rows of each step, in accelerate's order: first one micro-batch for each process in turn, then the next
    micro-batch for each.
    """
    steps: dict[int, list[tuple[int, int, list[str]]]] = {}
    for path in glob(os.path.join(cwd, "rows-*.jsonl")):
        rank = int(path.rpartition("-")[2].split(".")[0])
        with open(path, encoding="utf-8") as handle:
            for line in handle:
                one = json.loads(line)
                mine = steps.setdefault(one["step"], [])
                mine.append((sum(rank == theirs for _, theirs, _ in mine), rank, one["rows"]))
    return {step: [row for _, _, rows in sorted(parts) for row in rows] for step, parts in steps.items()}


def still(here: Runs) -> None:
    """Write the model `still`: a copy of `tiny` without dropout, so that losses do not depend on random states."""
    location = os.path.join(here.location, "still")
    if os.path.exists(location):
        return
    shutil.copytree(os.path.join(here.location, "tiny"), location)
    with open(os.path.join(location, "config.json"), encoding="utf-8") as handle:
        stated = json.load(handle)
    put(here.location, {"still/config.json": json.dumps({**stated, "attention_dropout": 0.0})})


def source(target: str, strategy: str, world: int, *more: str, **swaps: str) -> str:
    """A spec of 14 steps. On 2 and 4 processes a step has 8 rows in micro-batches of 2 rows; on 3 processes it has 6
    rows.

    ``swaps`` exchange the beginning of a setting's line: with `optimizer="sgd(momentum=0.9, "`, the spec has
    `sgd(momentum=0.9, ` instead of `optimizer adamw(`.
    """
    made = text(*more, world=world, strategy=strategy, target=target).replace('"tiny"', '"still"')
    made = made.replace("messages.jsonl", "preferences.jsonl") if "method dpo" in more else made
    for name, words in swaps.items():
        made = re.sub(rf"^{name} [^ (]*\(", f"{name} {words}", made, flags=re.MULTILINE)
    return made


@pytest.mark.parametrize("target", EACH_STACK)
def test_goes_on_with_more_and_fewer_processes(runs: Callable[[str], Runs], tmp_path: Path, target: str) -> None:
    chained(runs(target), partial(source, target, "ddp"), [2, 4, 1], str(tmp_path), f"others-{target}")


ZERO: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "zero2": ("zero2", (), {}),
    "zero3": ("zero3", ("lora(rank=4, dropout=0)",), {}),
}
LATER: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "zero1": ("zero1", (), {}),
    "whole": ("zero3", (), {}),
    "robin": ("zero2(round_robin_gradients)", (), {}),
    "pieces": ("zero3", ("extra deepspeed {\n  zero_optimization.sub_group_size = 5000\n}",), {}),
    "frozen": ("zero3", ("freeze(except_last=1)",), {}),
    "adapters": ("zero2", ("lora(rank=4, dropout=0)",), {}),
    "groups": ("zero3", (), {"optimizer": "adamw_torch(weight_decay=0.1, "}),
    "sgd": ("zero2", (), {"optimizer": "sgd(momentum=0.9, "}),
    "rmsprop": ("zero2", (), {"optimizer": "rmsprop("}),
}
SHARDED = [
    *(pytest.param(DEFAULT, one, id=name) for name, one in ZERO.items()),
    *(pytest.param(DEFAULT, one, id=name, marks=pytest.mark.nightly) for name, one in LATER.items()),
    *(
        pytest.param(target, (strategy, ("method dpo",), {}), id=f"{strategy}-{target}", marks=pytest.mark.nightly)
        for target in OTHERS
        for strategy in ("zero1", "zero3")
    ),
]


@pytest.mark.parametrize(("target", "kind"), SHARDED)
def test_zero_goes_on_with_more_and_fewer_processes(
    runs: Callable[[str], Runs], tmp_path: Path, target: str, kind: tuple[str, tuple[str, ...], dict[str, str]],
    request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """DeepSpeed itself cannot load a checkpoint that another number of processes has saved. In a bundle, each process
    builds its new shard of weights and optimizer states from the old shards.
    """
    strategy, more, swaps = kind
    name, worlds = f"shards-{request.node.callspec.id}", [1, 2, 4] if strategy == "zero3" else [2, 4, 1]
    chained(runs(target), lambda world: source(target, strategy, world, *more, **swaps), worlds, str(tmp_path), name)


KEPT_ON = [("bf16", "none"), ("fp16", "optimizer"), ("fp32", "none"), ("fp16", "none"), ("bf16", "all")]


@pytest.mark.nightly
@pytest.mark.parametrize(("precision", "offload"), KEPT_ON)
def test_shards_are_cut_without_a_loss(tmp_path: Path, precision: str, offload: str) -> None:
    """Two processes save a checkpoint, three processes load it and save it again, and two processes load the second
    checkpoint. No value of a weight or an optimizer state has then changed.

    The test runs only on the default stack: in deepspeed 0.16, gathering sharded weights on the CPU has a race, and
    sometimes returns uninitialized memory, even after DeepSpeed's own load.
    """
    torch = pytest.importorskip("torch")
    for world, words in ((2, ("first",)), (3, ("second", "first")), (2, ("third", "second"))):
        locations = [str(tmp_path / one) for one in words]
        together(interpreter(DEFAULT), "zero_states.py", world, precision, offload, *locations)
    for stage in (1, 2, 3):
        was, *later = (torch.load(tmp_path / one / f"{stage}.pt") for one in ("first", "second", "third"))
        assert len(list(tensors(was["whole"]))) == 15
        assert was["steps"] == 3
        for now in later:
            assert dict(tensors(now["whole"])) == dict(tensors(was["whole"]))
            assert dict(tensors(now["used"])) == dict(tensors(was["used"]))
            assert (now["groups"], now["steps"]) == (was["groups"], was["steps"])


def tensors(found: object, path: str = "") -> Iterator[tuple[str, list[float]]]:
    """Every tensor in a nested structure, with its path."""
    if isinstance(found, dict | list):
        for key, one in found.items() if isinstance(found, dict) else enumerate(found):
            yield from tensors(one, f"{path}.{key}")
    elif hasattr(found, "tolist"):
        yield path, found.tolist()
