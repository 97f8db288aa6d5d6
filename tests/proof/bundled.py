"""Train one step of a bundle on a tiny model, with the bundle's own trainer, adapters, frozen weights and reward
functions.

This program runs in the stack's interpreter. Weights and rows are made up. The values of reward functions are made up,
too, because the real values would all be zero for the texts of an untrained model.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import tiny_models

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path += [ROOT, os.path.join(ROOT, "tests", "support")]
import run_features  # noqa: E402

SIMULATED = ("the device", "the number of processes", "the dtype of trained weights", "the sharding of accelerate")
"""Arguments that differ if a run for GPUs is made on a CPU. Their values are not compared with those in the bundle."""


def bundle(run: Any) -> Any:
    """Read the run's trainer_args.json as a `Bundle` of the runtime."""
    from runtime.core.feature import Bundle

    return Bundle(run.folder, run.plan, "", {}, run_features.enabled(run.plan, "runtime").FEATURES)


def load(run: Any) -> Any:
    """The tiny model. It is quantized to 4 or 8 bits if the bundle quantizes its base."""
    from runtime.features.distributed.fsdp import Fsdp
    from runtime.features.model.adapters import quantization
    from runtime.features.model.weight_dtypes import WeightDtypes

    read = bundle(run)
    made = tiny_models.load(run.family, run.plan["model"], run.kind, quantization(read))
    for feature in (WeightDtypes(), Fsdp()):
        feature.model_loaded(read, made, None)
    return made


def trainer(run: Any) -> Any:
    """The trainer that runtime/core/trainer.py builds for the run's model and rows."""
    read = bundle(run)
    from runtime.core import made, trainer
    from runtime.features.method import rewards
    from runtime.features.method import teacher as teachers

    teachers.teacher = lambda _: teacher(run)
    functions = rewards.functions
    rewards.functions = lambda given: [telling(i, one) for i, one in enumerate(functions(given))]
    rows = made.compared
    made.compared = lambda *given: (row for row in rows(*given) if row[0] not in SIMULATED)
    kind = run_features.enabled(run.plan, "runtime").trainer_class
    built, stated = trainer.build(
        read, kind, run.model, lambda: load(run), args=run.args, train_dataset=train_rows(run, read),
        eval_dataset=run.held, processing_class=run.tokenizer, callbacks=[],
    )  # fmt: skip
    made.check(read, built, stated)
    if run.sharded:
        from runtime.features.distributed.fsdp import Fsdp

        Fsdp().before_training(read, built)
        built.add_callback(before_first_step(Fsdp(), read, built))
    return built


def before_first_step(feature: Any, read: Any, trainer: Any) -> Any:
    """A callback that calls the hook `before_first_step` of a feature."""
    from transformers import TrainerCallback

    class First(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 0:
                feature.before_first_step(read, trainer)

    return First()


def train_rows(run: Any, read: Any) -> Any:
    """The training rows of the run. They are a stream if the bundle reads a stream."""
    if not run.plan["data"].get("streaming"):
        return run.rows
    from runtime.features.streaming.passes import Stream
    from runtime.features.streaming.reading import sequences

    return Stream(run.rows.to_iterable_dataset(), sequences(read))


def teacher(run: Any) -> Any:
    """A copy of the student as the teacher for distillation. The copy is more confident in its predictions: from a
    teacher with the student's own predictions, the student would learn nothing.
    """
    model = tiny_models.load(run.family, run.plan["model"], run.kind)

    def certain(_: Any, __: Any, out: Any) -> Any:
        out.last_hidden_state = 2 * out.last_hidden_state
        return out

    # in transformers 4.52, gemma 3's `base_model` is the whole model, so its decoder is taken instead
    body = model.get_decoder() if model.base_model is model else model.base_model
    body.register_forward_hook(certain)
    return model.requires_grad_(False).eval()


def telling(index: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a reward function. The wrapper calls the function and checks how many values it returns. The wrapper itself
    returns made-up values, so that not all are equal.
    """

    @functools.wraps(function)
    def score(**given: Any) -> list[float]:
        answer = function(**given)
        wanted = len(given["completions"])
        if len(answer) != wanted:
            raise ValueError(f"{score.__name__} returns {len(answer)} numbers for {wanted} completions")
        return [float((len(str(one)) + i + index) % 3) for i, one in enumerate(given["completions"])]

    return score
