"""Write `deepspeed.json`. The file states every value as a number or a name that agrees with the trainer arguments, and
never "auto".
"""

from __future__ import annotations

from xpc.compiler.language.optimizers import METRIC_SCHEDULES
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, Literal

BUCKETS: Final = ("strategy.reduce_bucket", "strategy.allgather_bucket")
NEVER = 10**9
"""The value of `steps_per_print`: so many steps that DeepSpeed never prints its progress. The runtime prints the
progress instead.
"""


def deepspeed(spec: Spec) -> dict[str, Json]:
    """The DeepSpeed configuration for a ZeRO strategy. Raises ValueError for any other strategy."""
    if not spec.zero_stage:
        raise ValueError(f"{spec.text('strategy')} does not use DeepSpeed")
    out: dict[str, Json] = {
        # With context parallelism, several processes share a row. transformers expects the batch size as if each
        # process had rows of its own, and accelerate corrects the number later.
        "train_batch_size": spec.integer("batch.gbs") * spec.context_parallel,
        "train_micro_batch_size_per_gpu": spec.integer("batch.micro"),
        "gradient_accumulation_steps": spec.integer("batch.accum"),
        "gradient_clipping": spec.real("optimizer.clip"),
        "bf16": {"enabled": spec.text("precision") == "bf16"},
        "fp16": _fp16(spec),
        "zero_optimization": _zero(spec),
        "wall_clock_breakdown": False,
        "steps_per_print": NEVER,
    }
    if deepspeed_optimizer(spec):
        out["optimizer"] = {"type": "AdamW", "params": _adamw(spec)}
    else:
        out["zero_allow_untested_optimizer"] = True
    for name, value in spec.extra.get("deepspeed", {}).items():
        table: dict[str, Json] = out
        *path, key = name.split(".")
        for part in path:
            inner = table.setdefault(part, {})
            assert isinstance(inner, dict)
            table = inner
        value_ = value.value
        assert value_ is None or isinstance(value_, bool | int | float | str | list)
        table[key] = value_
    return out


def deepspeed_optimizer(spec: Spec) -> bool:
    """Whether deepspeed.json names the optimizer. If it does, DeepSpeed creates the optimizer; otherwise, transformers
    does.

    If DeepSpeed creates the optimizer, it also steps the schedule. It then passes the batch size to the schedule's
    `step` instead of the metric (runtime/engine.py, _take_model_step; checked by running it). Therefore a run whose
    schedule needs a metric uses transformers' AdamW. A run with LoRA+ also uses transformers' AdamW, because LoRA+ has
    two learning rates, and DeepSpeed's optimizer only one.
    """
    return spec.owns_optimizer and spec.text("schedule") not in METRIC_SCHEDULES


def deepspeed_extension(spec: Spec) -> Literal["fused_adam", "cpu_adam"] | None:
    """The C++ extension that DeepSpeed compiles for its own AdamW. None if the run uses an optimizer of torch or
    transformers.
    """
    if not spec.zero_stage:
        return None
    plan: dict[str, Any] = deepspeed(spec)
    optimizer = plan.get("optimizer") or {}
    if optimizer.get("type") != "AdamW" or (optimizer.get("params") or {}).get("torch_adam"):
        return None
    offload = plan["zero_optimization"].get("offload_optimizer") or {}
    return "fused_adam" if offload.get("device", "none") == "none" else "cpu_adam"


def _fp16(spec: Spec) -> dict[str, Json]:
    if spec.text("precision") != "fp16":
        return {"enabled": False}
    return {
        "enabled": True,
        "loss_scale": 0,
        "initial_scale_power": 16,
        "loss_scale_window": 1000,
        "hysteresis": 2,
        "min_loss_scale": 1,
    }


def _adamw(spec: Spec) -> dict[str, Json]:
    beta1, beta2 = spec.reals("optimizer.betas")
    params: dict[str, Json] = {
        "lr": spec.real("optimizer.lr"),
        "betas": [beta1, beta2],
        "eps": spec.real("optimizer.eps"),
        "weight_decay": spec.real("optimizer.weight_decay"),
    }
    if spec.on_cpu:
        # use torch's Adam, because DeepSpeed's fused Adam needs a compiled CUDA extension; both give the same result
        params["torch_adam"] = True
    return params


def _zero(spec: Spec) -> dict[str, Json]:
    stage, facts = spec.zero_stage, spec.model.facts
    out = {key: value for key, value in spec.stack.zero_defaults().items() if value is not None}
    for name in [key for key in out if key.startswith("stage3_")] if stage < 3 else ():
        del out[name]
    out["stage"] = stage
    overlap = spec.get("strategy.overlap_comm")
    out["overlap_comm"] = stage == 3 and not spec.on_cpu if overlap is None else overlap
    out["reduce_scatter"] = spec.get("strategy.reduce_scatter") is not False
    out["contiguous_gradients"] = spec.get("strategy.contiguous_gradients") is not False
    if stage < 3:
        out["round_robin_gradients"] = spec.flag("strategy.round_robin_gradients")
    if facts is not None:
        # the values that transformers writes in place of "auto" (HfTrainerDeepSpeedConfig.trainer_config_finalize)
        out["reduce_bucket_size"] = facts.hidden**2
        if stage == 3:
            out["stage3_prefetch_bucket_size"] = int(0.9 * facts.hidden**2)
            out["stage3_param_persistence_threshold"] = 10 * facts.hidden
    for path in BUCKETS:
        if spec.get(path) is not None:
            out[f"{path.rpartition('.')[2]}_size"] = spec.integer(path)
    if stage == 3:
        out["stage3_gather_16bit_weights_on_model_save"] = True
    where = spec.text("strategy.offload")
    if where != "none":
        out["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
        if where == "cpu" and stage == 3:
            out["offload_param"] = {"device": "cpu", "pin_memory": True}
    return dict(sorted(out.items()))
