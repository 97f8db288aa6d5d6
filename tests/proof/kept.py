"""variant.py changes a bundle for GPUs so that a step can be trained on a CPU. This module keeps properties that
variant.py would otherwise replace: gradient accumulation, bf16, ZeRO, and the arithmetic of flash attention.

bf16 is kept, but fp16 is not, because torch has no gradient scaler without a GPU. Quantized weights are loaded by the
runtime's own code.
"""

from __future__ import annotations

import json
import os
from typing import Any

MOST = 4
"""A step has at most this many micro-batches. A spec that states more is run with this number."""
FLASH = "flash_attention_2"


def before(plan: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """Change the plan so that it can run on a CPU. Return the arguments that need no replacement. Each has the value
    for the GPU, or the nearest value with which a CPU can run.
    """
    values, run, more = plan["arguments"], plan["run"], dict[str, Any]()
    # only one worker, because each worker imports the stack's libraries, which takes seconds
    for name, most in (("dataloader_num_workers", 1), ("dataloader_prefetch_factor", 4)):
        if isinstance(values.get(name), int):
            more[name] = min(values[name], most)
    lora = plan.get("lora") or {}
    if lora.get("bits") and not job["bits"]:
        plan["lora"] = {**lora, "bits": None, "adapter_dtype": None}
    # The few steps of a test may all be warmup steps, and then transformers' polynomial schedule divides by zero. So
    # there is no warmup.
    for name in ("warmup_ratio", "warmup_steps"):
        if values.get("lr_scheduler_type") == "polynomial" and 0 < (values.get(name) or 0) < 1:
            more[name] = 0
    if values.get("use_transformers_continuous_batching"):
        _little_memory()
    if run["gpu"] is None:
        if values.get("use_vllm"):  # this test has no vLLM server, and the vLLM package is not installed
            more["use_vllm"] = False
        values.update(more)
        return {}
    accumulation = int(values.get("gradient_accumulation_steps") or 1)
    more["gradient_accumulation_steps"] = min(accumulation, MOST)
    if values.get("bf16"):
        more.update(bf16=True)
        os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16"
        import transformers.training_args as module

        # With DeepSpeed, `use_cpu` stays false. transformers then asks this function, and refuses bf16 if it returns
        # False.
        module.is_torch_bf16_gpu_available = lambda *_: True
    shards = run["distributed_type"] in ("DEEPSPEED", "FSDP") and not job["zero"] and "fsdp" not in job["keep"]
    # On a GPU, DeepSpeed and FSDP convert float16 weights, or train a float32 copy. Without DeepSpeed and FSDP, the
    # weights are converted here.
    if shards and plan["model"]["dtype"] == "float16":
        plan["model"] = {**plan["model"], "dtype": "bfloat16" if values.get("bf16") else "float32"}
    lora = plan.get("lora") or {}
    # only DeepSpeed gives adapters the dtype of the sharded weights or, if it computes the reference, the precision's
    if shards and lora and (not lora.get("bits") or lora.get("adapter_dtype") == "float16"):
        plan["lora"] = {**lora, "adapter_dtype": "float32"}
        lora = plan["lora"]
    if plan["model"]["dtype"] == "float16" and values.get("bf16"):
        _wide_norms()
    if lora.get("compute_dtype") == "float16":
        plan["lora"] = {**plan["lora"], "compute_dtype": "float32"}
        # without autocast, weights that are not quantized are used in their own dtype
        if plan["model"]["dtype"] == "float16":
            plan["model"] = {**plan["model"], "dtype": "float32"}
    if lora.get("bits") and not job["zero"] and "fsdp" not in job["keep"]:
        # The storage dtype of packed weights matters only for sharding, and here nothing is sharded.
        plan["lora"] = {**plan["lora"], "storage_dtype": "uint8"}
    # float16 matrix products are less exact on a CPU than on a GPU, so the evaluation does without them
    if plan["model"]["dtype"] == "float16":
        more.update(fp16_full_eval=False)
    if job["reentrant"] and values.get("gradient_checkpointing"):
        more.update(gradient_checkpointing_kwargs={"use_reentrant": True})
    if job["flash"] and plan["model"]["attn_implementation"] == FLASH:
        import flash

        flash.install()
        more["attn_implementation"] = FLASH
    if job["zero"] and values.get("deepspeed"):
        more.update(fp16_full_eval=False)
        if values.get("fp16"):
            # On a GPU, DeepSpeed would convert all weights to fp16. Here `_deepspeed` turns fp16 off, so they stay
            # float32.
            plan["model"] = {**plan["model"], "dtype": "float32"}
            if lora.get("adapter_dtype"):
                plan["lora"] = {**plan["lora"], "adapter_dtype": "float32"}
        more.update(deepspeed=_deepspeed(plan, job, more), use_cpu=False)
    return more


def _little_memory() -> None:
    """Let psutil report a machine with 2 GiB of memory. Continuous batching takes most of the memory that psutil
    reports; with the real number, too little would be left for other tests.
    """
    import psutil

    seen = psutil.virtual_memory
    psutil.virtual_memory = lambda: seen()._replace(total=2 << 30)


def _wide_norms() -> None:
    """Compute LayerNorm under autocast in float32, as a GPU's autocast does.

    The CPU's kernel does not accept fp16 weights with bf16 inputs.
    """
    import torch

    plain = torch.nn.functional.layer_norm

    def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        if not torch.is_autocast_enabled("cpu"):
            return plain(input, normalized_shape, weight, bias, eps)
        weight, bias = (None if one is None else one.float() for one in (weight, bias))
        return plain(input.float(), normalized_shape, weight, bias, eps)

    torch.nn.functional.layer_norm = layer_norm


def _deepspeed(plan: dict[str, Any], job: dict[str, Any], more: dict[str, Any]) -> str:
    """The bundle's DeepSpeed file, changed for a CPU and the batch of this test: fp16 and offloading are off, and the
    optimizer is torch's AdamW.
    """
    with open(os.path.join(job["folder"], plan["arguments"]["deepspeed"]), encoding="utf-8") as handle:
        stated = json.load(handle)
    micro, accumulation = 2, more["gradient_accumulation_steps"]
    stated.update(train_batch_size=micro * accumulation * job["processes"], train_micro_batch_size_per_gpu=micro,
                  gradient_accumulation_steps=accumulation)  # fmt: skip
    stated["fp16"] = {"enabled": False}
    zero = stated["zero_optimization"]
    zero.update(overlap_comm=False)
    stated.get("aio", {}).pop("use_gds", None)  # GPUDirect Storage needs a GPU.
    # These settings need kernels for GPUs (XP571).
    for name in [name for name in zero if name.startswith("zero_quantized_")]:
        zero[name] = False
    for name in ("offload_optimizer", "offload_param"):
        zero.pop(name, None)
    made = stated.get("optimizer")
    if made is not None:
        made["params"]["torch_adam"] = True
    path = os.path.abspath(f"deepspeed-{os.getpid()}.json")
    with open(path, "w", encoding="utf-8") as handle:
        json.dump(stated, handle)
    return path
