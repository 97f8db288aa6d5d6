"""Measure the CPU time of a decoder layer: of plain, of LoRA and of ZeRO-3's layers (`HOOKED_MODULE` in plan/time.py).

python -m torch.distributed.run --nproc_per_node 2 tests/plan/hook_time.py

prints milliseconds for the four passes through a layer with recomputation. The layers are so narrow that their
products take hardly any time. The time of a layer is a tenth of the difference between models of 12 and of 2 layers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

os.environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")

import deepspeed
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

REPEATS = 12
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
ZERO = {
    "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 10**6, "bf16": {"enabled": True},
    "zero_allow_untested_optimizer": True, "steps_per_print": 10**9,
    "zero_optimization": {
        "stage": 3, "reduce_bucket_size": 1024, "stage3_prefetch_bucket_size": 921,
        "stage3_param_persistence_threshold": 320,
    },
}  # fmt: skip
"""The values of the buckets are those that transformers computes from the hidden size."""


def micro_batch(layers: int, kind: str) -> Callable[[], None]:
    """A function that runs the forward and the backward pass of one micro-batch."""
    config = LlamaConfig(**SIZES, num_hidden_layers=layers, vocab_size=64, use_cache=False)
    model = LlamaForCausalLM(config).bfloat16().train()
    if kind == "lora":
        model = get_peft_model(model, LoraConfig(r=8, target_modules="all-linear"))
        model.enable_input_require_grads()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    tokens = torch.ones(1, 8, dtype=torch.long)
    if kind != "zero3":
        return lambda: model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=ZERO)
    return lambda: engine.backward(engine(input_ids=tokens, labels=tokens).loss)


def seconds(run: Callable[[], None]) -> float:
    """The shortest CPU time of this thread, after three runs that are not measured."""
    times = []
    for _ in range(3 + REPEATS):
        started = time.thread_time()
        run()
        times.append(time.thread_time() - started)
    return min(times[3:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # it would be compiled for minutes
    deepspeed.init_distributed("gloo")
    for kind in ("plain", "lora", "zero3"):
        found = 100 * (seconds(micro_batch(12, kind)) - seconds(micro_batch(2, kind)))
        print(f"{kind}: {found:.1f} ms", flush=True)
    os._exit(0)  # DeepSpeed's threads would keep the process alive
