"""The process group and the arguments object: made once, in this order, and checked against what was planned."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from .bundle import Bundle
from .errors import RunError

SINGLE = {"NO": "one process", "MULTI_GPU": "plain data parallel (DDP)", "MULTI_CPU": "plain data parallel on the CPU"}


def prepare_environment(bundle: Bundle) -> None:
    """Settings that must stand before torch is imported: a CPU run stays on the CPU of a machine that has GPUs."""
    if bundle.on_cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def build_arguments(bundle: Bundle) -> Any:
    """The SFTConfig of the run, built once; nothing copies or replaces it later.

    On several CPU processes the process group is made here and handed over (``use_configured_state``), because
    transformers passes ``ddp_timeout`` on for GPUs only, and because accelerate 1.15 picks no backend for DeepSpeed on
    a CPU: each of two ranks would believe to be alone (TrainingArguments._setup_devices, PartialState, executed).
    """
    values = dict(bundle.arguments)
    if values.get("deepspeed"):
        values["deepspeed"] = bundle.inside(values["deepspeed"])
    if values.get("chat_template_path"):
        values["chat_template_path"] = bundle.inside(values["chat_template_path"])
    values.setdefault("disable_tqdm", True)
    if bundle.on_cpu and bundle.run["world_size"] > 1:
        _cpu_group(bundle, values)
        values["accelerator_config"] = {**(values.get("accelerator_config") or {}), "use_configured_state": True}
    from trl import SFTConfig

    try:
        return SFTConfig(**values)
    except TypeError as error:
        raise RunError(f"trl.SFTConfig does not take these arguments: {error}") from error


def _cpu_group(bundle: Bundle, values: dict[str, Any]) -> None:
    import torch.distributed as dist
    from accelerate import PartialState

    zero = bundle.run["distributed_type"] == "DEEPSPEED"
    if zero:
        # What accelerate's launcher exports; torchrun does not, and PartialState reads nothing else.
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    timeout = timedelta(seconds=values.get("ddp_timeout", 1800))
    # One gloo thread: work then ends in the order in which it began. DeepSpeed 0.16.8 gathers parameters with many
    # asynchronous calls and waits for the last one only (partition_parameters.py, _allgather_params_coalesced). That is
    # enough on a CUDA stream; with gloo's two threads an earlier call ended later, over weights that were just loaded,
    # in one ZeRO-3 run of four. DeepSpeed 0.19.8 waits for all.
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()
    options._threads, options._timeout = 1, timeout
    options._devices = [gloo.create_default_device()]
    dist.init_process_group("gloo", timeout=timeout, pg_options=options)
    PartialState(cpu=not zero, backend="gloo", timeout=timeout)


def check_state(bundle: Bundle, args: Any) -> None:
    """What accelerate made of the launch, against the plan.

    accelerate falls back in silence: FSDP or ZeRO asked for on a CPU becomes DDP (RULES D03, D04), a MULTI_CPU file on
    one machine becomes one process (N11). Raises RunError.
    """
    from accelerate.utils import DistributedType

    state, run = args.distributed_state, bundle.run
    seen = str(getattr(state.distributed_type, "value", state.distributed_type))
    wanted = run["distributed_type"]
    if seen == "MULTI_GPU" and wanted == "FSDP" and os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        seen = "FSDP"  # PartialState knows the processes only; AcceleratorState turns this into FSDP.
    if state.num_processes != run["world_size"] or args.world_size != run["world_size"]:
        raise RunError(f"accelerate sees {state.num_processes} process(es), and this bundle is for {run['world_size']}")
    if seen != wanted:
        raise RunError(
            f"this bundle is for {wanted}, and accelerate runs {SINGLE.get(seen, seen)} ({seen}); "
            "start it with its launch.sh"
        )
    if wanted == "DEEPSPEED" and state.distributed_type == DistributedType.DEEPSPEED:
        stage = args.deepspeed_plugin.zero_stage if args.deepspeed_plugin is not None else None
        if stage != run["zero_stage"]:
            raise RunError(f"this bundle is for ZeRO stage {run['zero_stage']}, and DeepSpeed was given stage {stage}")


def check_engine(bundle: Bundle, trainer: Any) -> None:
    """The same check on the wrapped model, once training has begun. Raises RunError."""
    stage = bundle.run["zero_stage"]
    if not stage:
        return
    engine = trainer.model_wrapped
    if not hasattr(engine, "zero_optimization_stage") or engine.zero_optimization_stage() != stage:
        raise RunError(f"this bundle is for ZeRO stage {stage}, and the model is wrapped in {type(engine).__name__}")
