"""FSDP2: the weights of a reference model that only the first process has loaded (`fsdp_cpu_ram_efficient_loading`) are
complete after it is sharded, and keep their dtype. Run by torch in several processes: `reference_weights.py FOLDER`.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist

os.environ |= {
    "ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
}  # fmt: skip

from accelerate import FullyShardedDataParallelPlugin
from process_exit import leave
from transformers import AutoModelForCausalLM, Qwen2Config
from trl.models.utils import prepare_fsdp

from runtime.library_internals.trl_modules import sharded

dist.init_process_group("gloo")
first, folder = dist.get_rank() == 0, sys.argv[1]
if first:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 128}
    config = Qwen2Config(**sizes, num_attention_heads=4, num_key_value_heads=2)
    AutoModelForCausalLM.from_config(config).bfloat16().save_pretrained(folder)
dist.barrier()
model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.bfloat16)
state = SimpleNamespace(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2))
accelerator = SimpleNamespace(
    state=state,
    device=torch.device("cpu"),
    is_main_process=first,
    mixed_precision="bf16",
    process_index=dist.get_rank(),
)
kept = {name: weight.clone() for name, weight in model.state_dict().items()} if first else {}
reference = sharded(prepare_fsdp)(model, accelerator)
for name, weight in reference.state_dict().items():
    whole = weight.full_tensor()
    assert whole.dtype == torch.bfloat16
    assert not first or torch.equal(whole, kept[name]), name
assert not reference.training
leave()
