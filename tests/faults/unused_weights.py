"""Compare FSDP2's gradients with the right ones, where each process uses another part of a model, as with experts.

``python unused_weights.py`` is started once per process, on the CPU with gloo. It raises AssertionError if a gradient
is wrong.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from process_exit import leave
from torch.distributed.fsdp import fully_shard

from runtime.features.distributed.fsdp import Fsdp

ROWS = torch.arange(2 * 6, dtype=torch.float32).reshape(2, 6).sin()


class Experts(torch.nn.Module):
    """Four experts. A row is computed by the shared layer and by a single expert."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = torch.nn.Linear(6, 6)
        self.experts = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in range(4))

    def forward(self, row: torch.Tensor, expert: int) -> Any:
        """The loss of one row."""
        return self.experts[expert](self.shared(row)).square().sum()


def main() -> None:
    """Compute both gradients, and compare them in every process."""
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    complete, model = Experts(), Experts()
    model.load_state_dict(complete.state_dict())
    fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
    bundle: Any = None
    trainer: Any = SimpleNamespace(model=model)
    Fsdp().before_first_step(bundle, trainer)
    model(ROWS[dist.get_rank()], dist.get_rank()).backward()
    sum(complete(row, number) / 2 for number, row in enumerate(ROWS)).backward()
    for (name, found), right in zip(model.named_parameters(), complete.parameters(), strict=True):
        gradient = torch.zeros_like(right) if found.grad is None else found.grad.full_tensor()
        assert torch.allclose(gradient, torch.zeros_like(right) if right.grad is None else right.grad), name
    leave()


main()
