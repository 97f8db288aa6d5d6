"""Make the CPU variant of a plan: replace each setting that needs a GPU. Settings that the proof is about are not
replaced.
"""

from __future__ import annotations

from typing import Any

import kept

HARDWARE: dict[str, Any] = {
    "bf16": False, "fp16": False, "tf32": None, "use_cpu": True, "ddp_backend": None, "dataloader_pin_memory": False,
    "report_to": [], "use_liger_kernel": False, "activation_offloading": False, "use_vllm": False,
    "optim": "adamw_torch", "torch_compile": False, "torch_compile_backend": None, "torch_compile_mode": None,
}  # fmt: skip
"""Maps arguments that need a GPU to the values that replace theirs on a CPU."""
SMALL: dict[str, Any] = {
    "per_device_train_batch_size": 2, "per_device_eval_batch_size": 2, "gradient_accumulation_steps": 1,
    "dataset_num_proc": None, "num_generations": 2, "max_completion_length": 8, "generation_batch_size": None,
    "steps_per_generation": None,
}  # fmt: skip
"""Values of arguments that make a run so small that it takes about a second."""
OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop")
"""Optimizers that need no additional package."""
LONG_ENOUGH = 8
"""In a run whose plan `on_cpu` has changed, a completion has at most this many tokens."""
LONGEST = 128
"""A sequence has at most this many tokens."""


def on_cpu(plan: dict[str, Any], job: dict[str, Any], keep: tuple[str, ...]) -> None:
    """Change a plan in place. `keep` names arguments that are not changed; `attn_implementation` and `deepspeed` are
    also possible names.
    """
    values, run = plan["arguments"], plan["run"]
    more = kept.before(plan, job) if job.get("checked") else {}
    keep = (*keep, *(name for name in ("attn_implementation", "deepspeed") if name in more))
    changes: dict[str, Any] = {"output_dir": "out", "report_to": [], "dataset_num_proc": None, "push_to_hub": False}
    if job.get("eager"):  # no compilation, which would take minutes
        changes.update(torch_compile=False, torch_compile_backend=None, torch_compile_mode=None)
    if not job.get("stop"):
        changes["max_steps"] = job["steps"]
    for name in ("max_completion_length", "max_new_tokens"):
        if isinstance(values.get(name), int):
            changes[name] = min(values[name], LONG_ENOUGH)
    if run["gpu"] is not None:
        changes = {**HARDWARE, **SMALL, **changes}
        if job["processes"] > 1 and "fsdp" not in keep:
            changes["ddp_backend"] = "gloo"
            if "FSDP" in run["distributed_type"]:
                # The spec's FSDP would ignore `ddp_static_graph`. The variant uses DDP instead, which must also ignore
                # it.
                changes["ddp_static_graph"] = None
            if values.get("ddp_find_unused_parameters") is None:
                # the variant runs with DDP, which reads `ddp_find_unused_parameters`
                changes["ddp_find_unused_parameters"] = False
        if values.get("optim") in OPTIMIZERS:
            changes.pop("optim")
        elif "optim" not in keep:
            changes.update(optim_args=None, optim_target_modules=None)
        if values.get("use_cpu") is False and "deepspeed" in keep:
            changes.pop("use_cpu")
        if isinstance(values.get("max_length"), int):
            changes["max_length"] = min(values["max_length"], LONGEST)
            if isinstance(values.get("max_prompt_length"), int):
                changes["max_prompt_length"] = min(values["max_prompt_length"], LONGEST // 2)
        if plan["model"]["attn_implementation"].startswith("fl") and "attn_implementation" not in keep:
            # On a CPU, flash attention has no kernel at all, and flex attention has no backward pass.
            plan["model"]["attn_implementation"] = "eager"
        if "deepspeed" not in keep:
            values.pop("deepspeed", None)
        plan["model"]["liger"] = False
    changes.update(more)
    for name, value in changes.items():
        if (name not in keep or name in more) and (name in values or name == "use_cpu"):
            values[name] = value
