"""Load and save a small model by DeepSpeed's own engine on CPU processes with gloo, also in half precision and with
offloading. A bundle cannot do this on a CPU, because accelerate replaces DeepSpeed by DDP there (XP306).

``python zero_states.py PRECISION OFFLOAD INTO [FROM]`` is started once per process, with RANK set. For each stage of
ZeRO it resumes from the checkpoint in FROM, or trains two steps; then it saves into INTO, and writes each complete
weight and optimizer state next to the saved files.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from process_exit import leave

from runtime.library_internals import deepspeed_shards

KINDS = ("exp_avg", "exp_avg_sq")
ROWS = torch.arange(12 * 8).reshape(12, 8).sin()


class Model(torch.nn.Module):
    """A model with odd sizes, a tied weight, a frozen layer, and a second parameter group."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 7)
        self.frozen = torch.nn.Linear(7, 8).requires_grad_(False)
        self.again = torch.nn.Linear(8, 7)
        self.again.weight = self.first.weight
        self.last = torch.nn.Linear(7, 13)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.last(self.again(self.frozen(self.first(rows).tanh()).tanh()).tanh())

    def groups(self) -> list[dict[str, object]]:
        weights = [self.first.weight, self.first.bias, self.again.bias, self.last.weight]
        return [{"params": weights, "lr": 0.1, "weight_decay": 0.1}, {"params": [self.last.bias], "lr": 0.2}]


def of_parts(trained: dict[str, torch.nn.Parameter]) -> dict[str, list[torch.Tensor]]:
    """Return each weight (in float32) and its optimizer states under ZeRO-3. DeepSpeed's own functions gather them."""
    return {
        name: [safe_get_full_fp32_param(one), *(safe_get_full_optimizer_state(one, kind) for kind in KINDS)]
        for name, one in trained.items()
    }


def of_rows(trained: dict[str, torch.nn.Parameter], optimizer: Any) -> dict[str, list[torch.Tensor]]:
    """Return each weight and its optimizer states under ZeRO-1 and ZeRO-2. DeepSpeed's own functions are not used,
    because they ignore `round_robin_gradients`.

    Instead, the shards of all processes are concatenated for each parameter group, and cut into weights in the order in
    which DeepSpeed stores the weights.
    """
    names, found = {weight: name for name, weight in trained.items()}, {}
    for mine, group in zip(optimizer.single_partition_of_fp32_groups, optimizer.round_robin_bit16_groups, strict=True):
        flats = []
        for shard in (mine.detach(), *(optimizer.optimizer.state[mine][kind] for kind in KINDS)):
            shards = [torch.empty_like(shard) for _ in range(dist.get_world_size())]
            dist.all_gather(shards, shard.contiguous())
            flats.append(torch.cat(shards))
        start = 0
        for weight in group:
            found[names[weight]] = [flat[start:][: weight.numel()].reshape(weight.shape) for flat in flats]
            start += weight.numel()
    return found


def main(precision: str, offload: str, into: str, origin: str | None = None) -> None:
    # without this line, DeepSpeed compiles its extension `deepspeed_shm_comm` from C++, which takes minutes
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    get_accelerator().is_fp16_supported = lambda: True
    deepspeed.init_distributed("gloo")
    world, rank = dist.get_world_size(), dist.get_rank()
    deepspeed_shards.DeepSpeedShards().before_arguments(SimpleNamespace(run={"world_size": world}), {})  # type: ignore[arg-type]
    rows = ROWS.to({"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32))
    for stage in (1, 2, 3):
        torch.manual_seed(0)
        model = Model()
        zero: dict[str, object] = {"stage": stage, "round_robin_gradients": stage == 2}
        if stage == 3:
            zero.update(sub_group_size=20, stage3_param_persistence_threshold=10)
        if offload != "none":
            zero["offload_optimizer"] = {"device": "cpu"}
        if offload == "all" and stage == 3:
            zero["offload_param"] = {"device": "cpu"}
        config = {
            "train_batch_size": 12, "train_micro_batch_size_per_gpu": 12 // world, "gradient_clipping": 1.0,
            "bf16": {"enabled": precision == "bf16"}, "fp16": {"enabled": precision == "fp16", "loss_scale": 8.0},
            "zero_optimization": zero, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
        }  # fmt: skip
        engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.groups()), config=config)
        for _ in range(0 if origin else 2):
            engine.backward(engine(rows[rank::world]).float().square().mean())
            engine.step()
        if origin:
            engine.load_checkpoint(os.path.join(origin, str(stage)))
        engine.save_checkpoint(os.path.join(into, str(stage)))
        with deepspeed.zero.GatheredParameters([*model.parameters()]):
            used = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        # under ZeRO-3, the forward pass gathers the weights from the loaded shards
        engine.backward(engine(rows[rank::world]).float().square().mean())
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        whole = of_parts(trained) if stage == 3 else of_rows(trained, engine.optimizer)
        engine.step()
        if rank == 0:
            groups = [
                {key: value for key, value in group.items() if key != "params"}
                for group in engine.optimizer.optimizer.param_groups
            ]
            reported = {"whole": whole, "used": used, "groups": groups, "steps": engine.global_steps}
            torch.save(reported, os.path.join(into, f"{stage}.pt"))
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
