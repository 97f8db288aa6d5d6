"""Make a model of random weights (`FOLDER`), or load it as a run does (`FOLDER STRATEGY DTYPE`) and print the bytes of
memory that this process takes for it, without pages of the checkpoint's file.
"""

import json
import os
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM


def anonymous() -> int:
    """The resident bytes of this process that do not belong to a file."""
    with open("/proc/self/status", encoding="ascii") as handle:
        return next(int(line.split()[1]) * 1024 for line in handle if line.startswith("RssAnon"))


folder, *way = sys.argv[1:]
if not way:
    sizes = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 16}
    LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=8000)).bfloat16().save_pretrained(folder)
else:
    torch.distributed.init_process_group("gloo")
    if way[0] == "fsdp":
        os.environ.update(ACCELERATE_USE_FSDP="true", FSDP_CPU_RAM_EFFICIENT_LOADING="true")
    before = anonymous()
    name = "dtype" if int(transformers.__version__[0]) > 4 else "torch_dtype"
    model = AutoModelForCausalLM.from_pretrained(folder, **{name: getattr(torch, way[1])})
    print(json.dumps({"taken": anonymous() - before, "params": sum(one.numel() for one in model.parameters())}))
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)  # see tests/faults/process_exit.py
