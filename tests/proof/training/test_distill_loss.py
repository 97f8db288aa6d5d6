"""For the same models, tokens and settings, distillation has the same loss on every stack.

The stacks' losses are compared with each other, and with an independent computation in float64.
"""

from __future__ import annotations

import math
import os
from typing import Any

import pytest
from method_runs import SETTINGS, Warm, small
from stacks import REPOSITORY

from xpc.compiler import stacks

pytestmark = pytest.mark.slow

PROGRAM = os.path.join(REPOSITORY, "tests", "proof", "training", "distill_loss.py")


@pytest.fixture(scope="module")
def losses_of_stacks(warm: Warm) -> dict[str, list[dict[str, Any]]]:
    """Map each stack to the logits, and to the losses for each divergence and temperature."""
    with open(PROGRAM, encoding="utf-8") as handle:
        program = handle.read()
    out = {}
    for stack in stacks.names():
        text = small(f"method distill{SETTINGS['distill']}", method="distill", target=stack)
        out[stack] = warm.program(stack, program, warm.compiled(text, f"loss-{stack}"))
    return out


def log_softmax(row: list[float], temperature: float) -> list[float]:
    scaled = [one / temperature for one in row]
    top = max(scaled)
    whole = top + math.log(math.fsum(math.exp(one - top) for one in scaled))
    return [one - whole for one in scaled]


def divergence(student: list[float], teacher: list[float], beta: float) -> float:
    """The generalized Jensen-Shannon divergence (Agarwal et al. 2024, arXiv:2306.13649, equation 1). For beta 0 and
    beta 1, it is one of the two Kullback-Leibler divergences.
    """

    def kl(p: list[float], q: list[float]) -> float:
        return math.fsum(math.exp(a) * (a - b) for a, b in zip(p, q, strict=True))

    if beta == 0:
        return kl(teacher, student)
    if beta == 1:
        return kl(student, teacher)
    both = [math.log(beta * math.exp(t) + (1 - beta) * math.exp(s)) for s, t in zip(student, teacher, strict=True)]
    return beta * kl(teacher, both) + (1 - beta) * kl(student, both)


def test_the_loss_is_the_published_one_on_every_stack(losses_of_stacks: dict[str, list[dict[str, Any]]]) -> None:
    for stack, (models, *found) in losses_of_stacks.items():
        assert len(found) == 8
        for one in found:
            for number, loss in enumerate(one["losses"]):
                rows = zip(models["student"][number], models["teacher"][number], strict=True)
                mine = math.fsum(
                    divergence(*(log_softmax(row, one["temperature"]) for row in pair), one["beta"]) for pair in rows
                )
                assert loss == pytest.approx(mine / models["tokens"], rel=5e-6), (stack, one)


def test_the_stacks_agree(losses_of_stacks: dict[str, list[dict[str, Any]]]) -> None:
    first, *others = losses_of_stacks.values()
    for other in others:
        for one, two in zip(first[1:], other[1:], strict=True):
            assert (one["beta"], one["temperature"]) == (two["beta"], two["temperature"])
            assert two["losses"] == pytest.approx(one["losses"], rel=2e-6)
            assert two["norm"] == pytest.approx(one["norm"], rel=2e-5)
    # The 16 losses all differ, so `beta` and `temperature` both have an effect.
    assert len({loss for one in first[1:] for loss in one["losses"]}) == 16
