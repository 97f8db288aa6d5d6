"""Save or load a small FSDP2 model and its optimizer as a bundle does, on CPU processes with gloo.

``python fsdp_states.py save|load FOLDER COPIES`` is started once per process, with RANK set. The processes hold COPIES
sharded copies of the model (more than 1 is hsdp). For each kind of checkpoint, it writes the weights and optimizer
states to FOLDER/KIND-save.pt or FOLDER/KIND-load.pt: as they are right after the save or load, and after one more step.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import fsdp_utils
from process_exit import leave
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.fsdp import StateDictType, fully_shard
from transformers import trainer

from runtime.library_internals.accelerate_fsdp import load_sharded_states

KINDS = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")
ROWS = torch.arange(12 * 7, dtype=torch.float32).reshape(12, 7).sin()


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer.zero_grad()
    model(ROWS[rank::world]).square().mean().backward()
    optimizer.step()


def main(phase: str, folder: str, copies: int) -> None:
    PartialState(cpu=True, backend="gloo")
    load_sharded_states()
    world, rank = dist.get_world_size(), dist.get_rank()
    for kind in KINDS:
        torch.manual_seed(7 if phase == "save" else 8)
        model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
        shape, names = (copies, world // copies), ("dp_replicate", "dp_shard")
        mesh = dist.device_mesh.init_device_mesh("cpu", shape, mesh_dim_names=names)
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh if copies > 1 else mesh["dp_shard"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        config = SimpleNamespace(offload_to_cpu=False, rank0_only=False)
        plugin = SimpleNamespace(
            fsdp_version=2,
            state_dict_type=StateDictType[kind],
            state_dict_config=config,
            optim_state_dict_config=config,
        )
        accelerator = SimpleNamespace(
            num_processes=world, process_index=rank, is_main_process=rank == 0, is_fsdp2=True,
            wait_for_everyone=dist.barrier,
        )  # fmt: skip
        location = os.path.join(folder, kind)
        if phase == "save":
            step(model, optimizer)
            step(model, optimizer)
            fsdp_utils.save_fsdp_model(plugin, accelerator, model, location)
            fsdp_utils.save_fsdp_optimizer(plugin, accelerator, optimizer, model, location)
        else:
            fsdp_utils.load_fsdp_model(plugin, accelerator, model, location)
            trainer.load_fsdp_optimizer(plugin, accelerator, optimizer, model, location)
        whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
        reported = {}
        for moment in ("loaded", "trained"):
            weights = get_model_state_dict(model, options=whole)
            # only process 0 gets the optimizer's states; the other processes get an empty dict
            states = get_optimizer_state_dict(model, optimizer, options=whole).get("state")
            reported[moment] = {"weights": dict(weights), "states": states}
            step(model, optimizer)
        if rank == 0:
            torch.save(reported, f"{location}-{phase}.pt")
    leave()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
