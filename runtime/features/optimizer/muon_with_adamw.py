"""torch's Muon and AdamW as one optimizer, with one list of groups and one state."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch


class MuonWithAdamW(torch.optim.Optimizer):  # type: ignore[misc]  # mypy reads no code of torch
    """Muon updates the first group, AdamW all other groups. Both use the groups and the state of this object, so
    schedules and checkpoints see one optimizer."""

    def __init__(
        self, plan: Mapping[str, Any], matrices: Sequence[object], others: Sequence[tuple[float, Sequence[object]]]
    ) -> None:
        """``others`` are pairs: a weight decay, and the weights that AdamW trains with this weight decay."""
        first, rest = plan["matrices"], plan["others"]
        self.muon = torch.optim.Muon(
            [{"params": [*matrices]}],
            lr=first["lr"],
            weight_decay=first["weight_decay"],
            momentum=first["momentum"],
            adjust_lr_fn=first["adjust_lr"],
        )
        groups = [{"params": [*weights], "weight_decay": decay} for decay, weights in others]
        options = {"lr": rest["lr"], "betas": tuple(rest["betas"]), "eps": rest["eps"], "fused": rest["fused"]}
        self.adamw = torch.optim.AdamW(groups, **options) if groups else None
        made = [*self.muon.param_groups, *(self.adamw.param_groups if self.adamw else ())]
        super().__init__(made, {"lr": first["lr"]})

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> object:
        """Make a step of Muon and of AdamW. At each step, both optimizers get the groups and the state again, because
        loading a checkpoint replaces them.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        first, *rest = self.param_groups
        for part, groups in ((self.muon, [first]), (self.adamw, rest)):
            if part is not None:
                part.param_groups, part.state = groups, self.state
                part.step()
        return loss
