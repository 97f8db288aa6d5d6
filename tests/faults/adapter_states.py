"""Save and load an adapter of a small FSDP model by accelerate's own functions, on CPU processes of gloo.

``python adapter_states.py fsdp1|fsdp2 FULL_STATE_DICT|SHARDED_STATE_DICT FOLDER`` is started once per process.
FOLDER/lost gets the number of trained weights whose loaded values differ from the saved values.
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.utils import fsdp_utils
from peft import LoraConfig, get_peft_model
from process_exit import leave
from torch.distributed.fsdp import FullyShardedDataParallel as Fsdp1
from torch.distributed.fsdp import ShardedOptimStateDictConfig, ShardedStateDictConfig, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import AutoModelForCausalLM, Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2, "tie_word_embeddings": False}


def sharded(version: str) -> Any:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(Qwen2Config(**SIZES, **HEADS))
    adapted = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
    if version == "fsdp1":
        return Fsdp1(
            adapted, auto_wrap_policy=ModuleWrapPolicy({Qwen2DecoderLayer}), use_orig_params=True,
            device_id=torch.device("cpu"),
        )  # fmt: skip
    from torch.distributed.fsdp import fully_shard

    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (*adapted.base_model.model.model.layers, adapted):
        fully_shard(layer, mesh=mesh)
    return adapted


def complete(version: str, model: Any) -> dict[str, Any]:
    """The trained weights, each gathered from the shards of all processes."""
    context = Fsdp1.summon_full_params(model) if version == "fsdp1" else nullcontext()
    with context:
        trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
        if version == "fsdp1":
            return {name: one.detach().clone() for name, one in trained.items()}
        return {name: one.detach().full_tensor() for name, one in trained.items()}


def main(version: str, kind: str, folder: str) -> None:
    PartialState(cpu=True, backend="gloo")
    world, rank = dist.get_world_size(), dist.get_rank()
    shards = (ShardedStateDictConfig(offload_to_cpu=True), ShardedOptimStateDictConfig(offload_to_cpu=True))
    config = SimpleNamespace(offload_to_cpu=False, rank0_only=False)
    configs = shards if version == "fsdp1" else (config, config)
    plugin = SimpleNamespace(
        fsdp_version=int(version[-1]), sync_module_states=True, state_dict_type=StateDictType[kind],
        state_dict_config=configs[0], optim_state_dict_config=configs[1],
    )  # fmt: skip
    accelerator = SimpleNamespace(
        num_processes=world, process_index=rank, is_main_process=rank == 0, is_fsdp2=version == "fsdp2",
        wait_for_everyone=dist.barrier,
    )  # fmt: skip
    saved, loaded = sharded(version), sharded(version)
    for model, value in ((saved, 0.5), (loaded, 0.0)):
        with torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad:
                    weight.fill_(value)
    location = os.path.join(folder, "checkpoint")
    fsdp_utils.save_fsdp_model(plugin, accelerator, saved, location, adapter_only=True)
    fsdp_utils.load_fsdp_model(plugin, accelerator, loaded, location, adapter_only=True)
    before, after = complete(version, saved), complete(version, loaded)
    lost = sum(not torch.equal(after[name], weight) for name, weight in before.items())
    if rank == 0:
        with open(os.path.join(folder, "lost"), "w", encoding="utf-8") as handle:
            handle.write(f"{lost} of {len(before)}")
    leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
