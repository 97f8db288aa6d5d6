"""A spec can choose its best checkpoint by a metric. The allowed metrics are those that evaluations of the real trainer
report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import prove
import pytest
from case_support import spec, trained
from tiers import nightly_but

from xpc.compiler import stacks
from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.rules.optimizer.best_model import FUNCTIONS, SPEED
from xpc.runtime.features.method.rewards import CONFIGURABLE, PLAIN

pytestmark = pytest.mark.slow
PAIRS = trained("qwen2.5-3b on ultrafeedback-binarized")
CONDITIONAL = {"aux_loss", "nll_loss", "rewards/margins", "kl", "policy_loss", "entropy_coef", "cispo_clip_ratio"}
"""Metrics that exist only under a condition, such as a mixture of experts, a loss with a likelihood term, kto with both
kinds of answers in the holdout, a divergence that the trainer logs, or certain losses and coefficients of grpo (also
`vespo` and `sampling`).
"""
METRICS = {name: stacks.load(name).facts.evaluation_metrics for name in stacks.names()}
EACH = [(target, method) for target, methods in METRICS.items() for method in methods]


@pytest.fixture(scope="module")
def provers() -> Iterator[dict[str, prove.Prover]]:
    """The process of each target, started when it is first needed."""
    kept: dict[str, prove.Prover] = {}
    yield kept
    for one in kept.values():
        one.close()


def text(method: str, target: str) -> str:
    """A spec of the method with a holdout, so that the run evaluates."""
    prompts = {"train": trained("qwen2.5-3b on deepmath-103k")}
    around = {"sft": {}, "grpo": prompts, "rloo": prompts, "distill": prompts}.get(method, {"train": PAIRS})
    more = {"grpo": "(rewards=format)", "rloo": "(rewards=format)", "distill": "(teacher=qwen2.5-7b)"}
    clause = f"method {method}{more.get(method, '')}"
    return spec(clause, "data(holdout=5%)", f"target {target}", **around)


@pytest.mark.parametrize(("target", "method"), nightly_but(EACH, lambda one: one[0] == stacks.DEFAULT))
def test_metrics_are_those_of_the_trainer(
    target: str, method: str, provers: dict[str, prove.Prover], tmp_path: Any
) -> None:
    written = text(method, target)
    requested = prove.Proof(
        "E04", "XP512", at="init", text=written, legal=written, measure="evaluation.metrics", expect={"names": None}
    )
    if target not in provers:
        provers[target] = prove.Prover(target)
    one = prove.job(requested, False, str(tmp_path))
    answer = provers[target].answers([one])[one["id"]]
    assert answer["raised"] is None, answer["raised"]
    names, known = set(answer["measured"]["names"]), {*SPEED[:1], *METRICS[target][method]}
    if method in ("grpo", "rloo"):  # a test function replaces the reward, so the metric has this function's name
        names = {one for one in names if not one.startswith("rewards/")}
    assert names <= known
    assert {one for one in known - names if not one.startswith(("vespo/", "sampling/"))} <= CONDITIONAL


def test_rewards_are_logged_by_the_names_of_their_functions() -> None:
    made = {name: function.__name__ for name, function in PLAIN.items()}
    needed = {"soft_overlong_punishment": {"max_completion_len": 16, "soft_punish_cache": 4}}
    made |= {name: make(**needed.get(name, {})).__name__ for name, make in CONFIGURABLE.items()}
    assert {name: FUNCTIONS.get(name, f"{name}_reward") for name in REWARDS} == made
