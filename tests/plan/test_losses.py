"""What the plan counts of logits and losses is what is alive while the real loss is computed."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from xpc.compiler.plan.memory import HEADS

pytestmark = pytest.mark.slow
TOKENS, WORDS, WIDTH = 64, 8192, 32


class Alive(TorchDispatchMode):
    """Bytes of the storages that are made in it and still alive; `most` is the largest sum."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.most = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, given: tuple[Any, ...] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        out = function(*given, **(named or {}))
        for one in tree_flatten(out)[0]:
            if isinstance(one, torch.Tensor):
                storage = one.untyped_storage()
                key = storage._cdata
                if key not in self.sizes:
                    self.sizes[key] = storage.nbytes()
                    self.most = max(self.most, sum(self.sizes.values()))
                    weakref.finalize(storage, self.sizes.pop, key, None)
        return out


@pytest.mark.parametrize(("half", "dtype"), [(True, torch.bfloat16), (False, torch.float32)], ids=["bf16", "fp32"])
@pytest.mark.parametrize(("beta", "head"), [(0.0, "divergence"), (0.5, "mixture"), (1.0, "divergence")])
def test_a_divergence_holds_what_the_plan_counts(beta: float, head: str, half: bool, dtype: torch.dtype) -> None:
    """GKDTrainer's loss; a beta of 0 needs a copy less than one of 1."""
    from trl.experimental.gkd import GKDTrainer

    student = torch.randn(WORDS, WIDTH, dtype=dtype, requires_grad=True)
    teacher = torch.randn(WORDS, WIDTH, dtype=dtype)
    hidden = torch.randn(1, TOKENS, WIDTH, dtype=dtype, requires_grad=True)
    with Alive() as alive:
        logits = hidden @ student.t()
        with torch.no_grad():
            others = hidden @ teacher.t()
        labels = torch.zeros(1, TOKENS, dtype=torch.long)
        GKDTrainer.generalized_jsd_loss(logits, others, labels=labels, beta=beta).backward()
    counted = HEADS[head][0 if half else 1]
    measured = alive.most / (TOKENS * WORDS)
    assert counted - (0 if beta else counted / 11) <= measured + 0.1
    assert measured <= counted + 0.1
