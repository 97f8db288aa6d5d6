"""Write `accelerate.yaml`. Its values are plain, and its blocks are nested at most two levels deep."""

from __future__ import annotations

import json

from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Json

FSDP1_STRATEGY = {True: "FULL_SHARD", False: "SHARD_GRAD_OP"}
HYBRID_STRATEGY = {True: "HYBRID_SHARD", False: "HYBRID_SHARD_ZERO2"}
ATTENTION = {
    "flash2": "flash_attention_2",
    "flash3": "flash_attention_3",
    "sdpa": "sdpa",
    "eager": "eager",
    "flex": "flex_attention",
}
"""Maps each of xpc's attention implementations to transformers' name for it."""


def distributed_type(spec: Spec) -> str:
    """The distributed type, such as FSDP, that accelerate must report in the run. If accelerate reports a different
    one, the runtime stops the run.
    """
    if spec.zero_stage:
        return "DEEPSPEED"
    if spec.sharded_by_fsdp:
        return "FSDP"
    if spec.hardware.world == 1:
        return "NO"
    return "MULTI_CPU" if spec.on_cpu else "MULTI_GPU"


def accelerate(spec: Spec) -> dict[str, Json]:
    """The content of `accelerate.yaml`.

    Several processes on one CPU machine are configured as MULTI_GPU with `use_cpu`, because accelerate's launcher
    starts only one process for MULTI_CPU (accelerate 1.4 and 1.15, `commands/launch.py`, checked by running it). For
    DEEPSPEED, the key `mixed_precision` is left out: together with a DeepSpeed file, accelerate refuses this key with
    any value, the default included.
    """
    kind = distributed_type(spec)
    out: dict[str, Json] = {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": "MULTI_GPU" if kind == "MULTI_CPU" else kind,
        "downcast_bf16": "no",
        "enable_cpu_affinity": False,
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": spec.hardware.nodes,
        "num_processes": spec.hardware.world,
        "rdzv_backend": spec.text("launch.rendezvous") if spec.hardware.nodes > 1 else "static",
        "use_cpu": spec.on_cpu,
    }
    if kind == "DEEPSPEED":
        experts = spec.stack.facts.expert_blocks.get(spec.model.model_type or "") if spec.zero_stage == 3 else None
        out["deepspeed_config"] = {
            **({} if experts is None else {"deepspeed_moe_layer_cls_names": experts}),
            "deepspeed_multinode_launcher": "standard",
            "zero3_init_flag": spec.zero_stage == 3,
        }
    else:
        precision = spec.text("precision")
        out["mixed_precision"] = precision if precision in ("bf16", "fp16", "fp8") else "no"
        if precision == "fp8":
            out["fp8_config"] = _fp8(spec)
    if spec.ulysses:
        out["parallelism_config"] = _ulysses(spec)
    if kind == "FSDP":
        out["fsdp_config"] = _fsdp(spec)
        mesh = _mesh(spec)
        if mesh is not None:
            out["parallelism_config"] = mesh
    for name, value in spec.extra.get("accelerate", {}).items():
        assert value.value is None or isinstance(value.value, bool | int | float | str | list)
        if name.startswith("fsdp_"):
            block = out.setdefault("fsdp_config", {})
            assert isinstance(block, dict)
            block[name] = value.value
            # state a number, because accelerate's own default is the text 1e8, which accelerate cannot parse
            if str(value.value).upper() == "SIZE_BASED_WRAP":
                block.setdefault("fsdp_min_num_params", 100_000_000)
        else:
            out[name] = value.value
    return dict(sorted(out.items()))


def _fp8(spec: Spec) -> dict[str, Json]:
    """The configuration of torchao for fp8. The option `enable_fsdp_float8_all_gather` is on only under FSDP. Without
    FSDP, the option would give weights that safetensors cannot save (RuntimeError).

    Source: accelerate 1.15 `utils/dataclasses.py` (`AORecipeKwargs`); confirmed by running it on a CPU.
    """
    return {"backend": "AO", "enable_fsdp_float8_all_gather": spec.sharded_by_fsdp, "pad_inner_dim": True}


def _mesh(spec: Spec) -> dict[str, Json] | None:
    """The device mesh of FSDP2. None if the run needs no mesh, because all ranks together shard one model, and each
    rank has its own sequences.

    accelerate shards the model over `dp_shard` times `cp` ranks. xpc's `strategy.shard` is this product. Source:
    accelerate 1.15 `parallelism_config.py` (`dp_shard_cp`).
    """
    hybrid = spec.text("strategy") == "hsdp" and spec.stack.facts.hsdp == "parallelism_config"
    if not hybrid and spec.context_parallel == 1:
        return None
    shard = spec.integer("strategy.shard") if hybrid else spec.hardware.world
    out: dict[str, Json] = {
        "parallelism_config_cp_size": spec.context_parallel,
        "parallelism_config_dp_replicate_size": spec.hardware.world // shard,
        "parallelism_config_dp_shard_size": shard // spec.context_parallel,
        "parallelism_config_tp_size": 1,
    }
    if spec.context_parallel > 1:
        out["parallelism_config_cp_backend"] = "torch"
        out["parallelism_config_cp_comm_strategy"] = "allgather"
    return dict(sorted(out.items()))


def _ulysses(spec: Spec) -> dict[str, Json]:
    """The settings of Ulysses for a DeepSpeed run, in which the processes of a group share each sequence. ZeRO still
    shards the model over all processes, and not within a group.

    Source: accelerate 1.15 `parallelism_config.py`, `utils/dataclasses.py` (`DeepSpeedSequenceParallelConfig`).
    """
    return {
        "parallelism_config_cp_size": 1,
        "parallelism_config_dp_replicate_size": spec.replicas,
        "parallelism_config_dp_shard_size": 1,
        "parallelism_config_sp_attn_implementation": ATTENTION[spec.text("model.attn")],
        "parallelism_config_sp_backend": "deepspeed",
        "parallelism_config_sp_seq_length_is_variable": True,
        "parallelism_config_sp_size": spec.context_parallel,
        "parallelism_config_tp_size": 1,
    }


def _fsdp(spec: Spec) -> dict[str, Json]:
    reshard, full = spec.flag("strategy.reshard"), spec.text("strategy.state_dict") == "full"
    out: dict[str, Json] = {
        "fsdp_activation_checkpointing": False,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        # accelerate 1.15 refuses `fsdp_cpu_ram_efficient_loading` if torchao computes in fp8
        "fsdp_cpu_ram_efficient_loading": spec.text("precision") != "fp8",
        "fsdp_offload_params": spec.text("strategy.offload") == "cpu",
        "fsdp_state_dict_type": "FULL_STATE_DICT" if full else "SHARDED_STATE_DICT",
    }
    if spec.by_fsdp1:
        names = FSDP1_STRATEGY if spec.text("strategy") == "fsdp1" else HYBRID_STRATEGY
        out.update(
            {
                "fsdp_backward_prefetch": "BACKWARD_PRE",
                "fsdp_forward_prefetch": False,
                "fsdp_sharding_strategy": names[reshard],
                "fsdp_sync_module_states": True,
                "fsdp_use_orig_params": True,
            }
        )
        if spec.stack.facts.fsdp2:
            out["fsdp_version"] = 1
    else:
        out["fsdp_reshard_after_forward"] = reshard
        out["fsdp_version"] = 2
    return dict(sorted(out.items()))


def yaml(table: dict[str, Json], comment: str) -> str:
    """Write a dictionary as YAML 1.1 below a comment. Strings are always quoted, so that a parser returns an equal
    dictionary.
    """
    lines = [f"# {line}" for line in comment.splitlines()]
    for key, value in table.items():
        if isinstance(value, dict):
            lines.append(f"{key}:")
            lines += [f"  {inner}: {_scalar(one)}" for inner, one in value.items()]
        else:
            lines.append(f"{key}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _scalar(value: Json) -> str:
    if isinstance(value, float):
        text = repr(value)  # YAML 1.1 reads repr's 1e-05 as a string, and 1.0e-05 as a number
        return text if "." in text or "e" not in text else text.replace("e", ".0e", 1)
    return json.dumps(value)
