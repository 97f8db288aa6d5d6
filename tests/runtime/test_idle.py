"""A run that learns nothing reports it once; a run that learns does not report it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from run_features import read
from runtime_bundles import plan, source, write

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.optimizer.idle import FEWEST, WINDOW, Idle

LEARNS = {"loss": 1.0, "grad_norm": 0.5, "lr": 1e-5}


def checker(
    tmp_path: Path,
    events: list[dict[str, Any]],
    idle: str = "warn",
    warmup: int = 0,
    last: int = 1000,
    generates: bool = False,
    **arguments: Any,
) -> list[int]:
    """Pass log events to the feature one after another. Return the indices of those events after which it reports that
    the run learns nothing."""
    folder = tempfile.mkdtemp(dir=tmp_path)
    bundle = read(write(folder, plan("tiny", [source("d.jsonl")])))
    bundle.run["idle"], bundle.plan["method"]["generates"] = idle, generates
    bundle.arguments.update(arguments)
    feature, found = Idle(), []
    args = SimpleNamespace(get_warmup_steps=lambda steps: warmup)
    state = SimpleNamespace(max_steps=last, global_step=0)
    feature.before_first_step(bundle, SimpleNamespace(args=args, state=state, model=Weights()))
    for number, one in enumerate(events):
        before = feature.reported
        feature.log_words(bundle, {"step": number + 1, **one})
        found += [number] if feature.reported and not before else []
    return found


class Weights:
    """A model without trained weights."""

    def parameters(self) -> list[Any]:
        return []


def varied(count: int, **same: Any) -> list[dict[str, Any]]:
    return [{**LEARNS, "loss": 2.0 - 0.01 * i, **same} for i in range(count)]


@pytest.mark.parametrize(
    ("same", "arguments", "words"),
    [
        ({"grad_norm": 0.0}, {}, "the gradient was 0"),
        ({"grad_norm": 3e-12}, {}, "the gradient was 0"),
        ({"lr": 0.0}, {}, "the learning rate was 0"),
        ({"loss": 1.25}, {}, "the loss was 1.2500"),
        ({"reward_std": 0.0, "reward": 1.0}, {"temperature": 1e-4}, "`temperature = 0.0001` makes them equal"),
        (
            {"frac_reward_zero_std": 1.0, "reward": 0.0}, {"temperature": 1.0, "learning_rate": 1e-6},
            "the same reward (0.0): the reward is too coarse, or the task is too hard or too easy",
        ),
        (
            {"completions/clipped_ratio": 1.0}, {"mask_truncated_completions": True, "max_completion_length": 8},
            "every completion was cut at 8 tokens and masked",
        ),
    ],
)  # fmt: skip
def test_each_idle_run_is_reported_once_with_its_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], same: dict[str, Any], arguments: dict[str, Any], words: str
) -> None:
    assert checker(tmp_path, varied(3 * WINDOW, **same), **arguments) == [WINDOW - 1]
    assert words in capsys.readouterr().out
    with pytest.raises(RunError, match="nothing is learned"):
        checker(tmp_path, varied(WINDOW, **same), "stop", **arguments)


def test_a_short_run_is_judged_at_its_end(tmp_path: Path) -> None:
    assert checker(tmp_path, varied(5, grad_norm=0.0), last=5) == [4]
    assert checker(tmp_path, varied(FEWEST - 1, grad_norm=0.0), last=FEWEST - 1) == []
    two = [{**LEARNS, "frac_reward_zero_std": 1.0, "step": step} for step in (10, 15)]
    assert checker(tmp_path, two, last=15) == [1]
    assert checker(tmp_path, two, last=15, warmup=10) == []


def test_a_single_log_of_ten_steps_is_judged_by_its_means(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rate, gradient and loss of a single log are those of one step, so they are not judged."""
    equal = [{**LEARNS, "frac_reward_zero_std": 1.0, "reward": 0.0, "step": 10}]
    assert checker(tmp_path, equal, last=10, temperature=1.0) == [0]
    assert "nothing is learned: over the last 10 steps all completions" in capsys.readouterr().out
    assert checker(tmp_path, equal, last=20, temperature=1.0) == []
    assert checker(tmp_path, [{**LEARNS, "lr": 0.0, "grad_norm": 0.0, "step": 10}], last=10) == []


@pytest.mark.slow
def test_a_run_that_learns_is_not_reported(tmp_path: Path) -> None:
    assert checker(tmp_path, varied(100)) == []
    assert checker(tmp_path, [*varied(20), *varied(20, lr=0.0)]) == []  # a schedule may end at 0
    assert checker(tmp_path, [*varied(50, lr=0.0), *varied(50)], warmup=50) == []
    assert checker(tmp_path, [*varied(9, grad_norm=0.0), *varied(1), *varied(9, grad_norm=0.0)]) == []
    # an on-policy loss is always near 0, also in a run that learns
    assert checker(tmp_path, varied(50, loss=0.0, reward_std=0.2), generates=True) == []
    assert checker(tmp_path, varied(50, **{"completions/clipped_ratio": 1.0}), mask_truncated_completions=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 1e-12, 1e-3])
def test_weights_that_stay_the_same_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: float
) -> None:
    """In bf16, a step of 1e-12 is rounded away. After a change in the first window, later windows are not checked."""
    import torch

    model = torch.nn.Linear(64, 64, dtype=torch.bfloat16)
    torch.nn.init.constant_(model.weight, 0.02)
    torch.nn.init.constant_(model.bias, 0.02)
    bundle = read(write(tempfile.mkdtemp(dir=tmp_path), plan("tiny", [source("d.jsonl")])))
    bundle.run["idle"], bundle.plan["method"]["generates"] = "warn", False
    feature, state = Idle(), SimpleNamespace(max_steps=1000, global_step=0)
    args = SimpleNamespace(get_warmup_steps=lambda steps: 0)
    feature.before_first_step(bundle, SimpleNamespace(args=args, state=state, model=model))
    for number, one in enumerate(varied(4 * WINDOW)):
        with torch.no_grad():
            model.bias[7] += rate if number < WINDOW else 0
        feature.log_words(bundle, {**one, "step": number + 1})
    assert feature.reported == (rate < 1e-6)
    assert ("the weights stayed the same" in capsys.readouterr().out) == (rate < 1e-6)
