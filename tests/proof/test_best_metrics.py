"""The metrics that a best checkpoint may be chosen by are those that an evaluation of the real trainer answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import prove
import pytest
from case_support import spec, trained

from xpc.compiler import stacks
from xpc.compiler.rules.best_model import SPEED

pytestmark = pytest.mark.slow
PAIRS = trained("qwen2.5-3b on ultrafeedback-binarized")
CONDITIONAL = {"aux_loss", "nll_loss", "rewards/margins"}
"""Of a mixture of experts, of a loss with a likelihood beside it, and of kto where both kinds of answers are held."""
METRICS = {name: stacks.load(name).facts.evaluation_metrics for name in stacks.names()}
EACH = [(target, method) for target, methods in METRICS.items() for method in methods]


@pytest.fixture(scope="module")
def provers() -> Iterator[dict[str, prove.Prover]]:
    """The process of each target, started when it is asked for."""
    kept: dict[str, prove.Prover] = {}
    yield kept
    for one in kept.values():
        one.close()


def text(method: str, target: str) -> str:
    """A spec of the method that holds rows out."""
    around = {"sft": {}, "grpo": {"train": trained("qwen2.5-3b on deepmath-103k")}}.get(method, {"train": PAIRS})
    clause = "method grpo(rewards=format)" if method == "grpo" else f"method {method}"
    return spec(clause, "data(holdout=5%)", f"target {target}", **around)


@pytest.mark.parametrize(("target", "method"), EACH)
def test_metrics_are_those_of_the_trainer(
    target: str, method: str, provers: dict[str, prove.Prover], tmp_path: Any
) -> None:
    written = text(method, target)
    asked = prove.Proof(
        "E04", "XP512", at="init", text=written, legal=written, measure="evaluation.metrics", expect={"names": None}
    )
    if target not in provers:
        provers[target] = prove.Prover(target)
    one = prove.job(asked, False, str(tmp_path))
    answer = provers[target].answers([one])[one["id"]]
    assert answer["raised"] is None, answer["raised"]
    names, known = set(answer["measured"]["names"]), {*SPEED[:1], *METRICS[target][method]}
    assert names <= known
    assert known - names <= CONDITIONAL
