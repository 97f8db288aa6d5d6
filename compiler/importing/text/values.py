"""Values that the sources share: what transformers calls optimizers, schedules, attention, dtypes and trackers."""

from __future__ import annotations

from functools import cache

from xpc.compiler import stacks

ATTENTION = {
    "flash_attention_2": "flash2", "flash_attn_2": "flash2", "fa2": "flash2", "flash": "flash2",
    "flash_attention_3": "flash3", "fa3": "flash3", "kernels-community/vllm-flash-attn3": "flash3",
    "kernels-community/flash-attn2": "flash2", "kernels-community/flash-attn": "flash2",
    "kernels-community/flash-attn3": "flash3",
    "sdpa": "sdpa", "eager": "eager", "flex_attention": "flex", "disabled": "eager",
}  # fmt: skip
"""`attn_implementation`; kernels of the Hub are the same algorithm from another build."""

DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16",
          "float32": "fp32", "fp32": "fp32", "float": "fp32"}  # fmt: skip

SCHEDULES = {
    "linear": "linear", "cosine": "cosine", "cosine_with_min_lr": "cosine", "cosine_warmup_with_min_lr": "cosine",
    "cosine_with_restarts": "cosine_with_restarts", "constant": "constant", "constant_with_warmup": "constant",
    "polynomial": "polynomial", "inverse_sqrt": "inverse_sqrt", "reduce_lr_on_plateau": "reduce_lr_on_plateau",
    "warmup_stable_decay": "wsd", "greedy": "greedy",
}  # fmt: skip

RENAMES = {
    "max_seq_length": "max_length", "model_max_length": "max_length", "torch_dtype": "dtype",
    "evaluation_strategy": "eval_strategy", "gradient_checkpointing": "activation_checkpointing",
    "gradient_checkpointing_kwargs": "activation_checkpointing_kwargs", "use_liger": "use_liger_kernel",
    "per_gpu_train_batch_size": "per_device_train_batch_size", "hub_model_revision": "hub_revision",
    "per_gpu_eval_batch_size": "per_device_eval_batch_size", "push_to_hub_model_id": "hub_model_id",
    "attn_implementation": "attn_implementation", "max_new_tokens": "max_completion_length",
}  # fmt: skip
"""Names of other versions, to those of the schema."""

TRACKERS = ("wandb", "trackio", "tensorboard")
OTHER_TRACKERS = (
    "azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte", "mlflow", "neptune", "swanlab",
)  # fmt: skip
"""Those of transformers that the language has not."""

GONE_OPTIMIZERS = {
    "adamw_hf": "adamw_torch", "adamw_apex_fused": "adamw_fused", "adamw_8bit": "adamw8bit", "adafactor": "adafactor",
    "adamw_torch_npu_fused": "adamw_fused", "adamw_torch_xla": "adamw_torch", "adamw": "adamw_torch",
}  # fmt: skip
"""Names that today's `OptimizerNames` lacks, or that other hardware has, and what has the same arithmetic."""


@cache
def optimizers() -> dict[str, str]:
    """transformers' name of each optimizer, to the language's. `adamw` itself is left out: it means what is usual."""
    out: dict[str, str] = dict(GONE_OPTIMIZERS)
    for name in stacks.names():
        stack = stacks.load(name)
        assert stack is not None
        table = stack.table["policy"]["optimizers"]
        assert isinstance(table, dict)
        out.update({str(theirs): ours for ours, theirs in table.items() if ours != "adamw"})
    return out
