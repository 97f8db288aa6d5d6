"""Functions with which proofs measure strategies in accelerate and DeepSpeed: the plugins in a worker, the device mesh,
and the wrapped model.
"""

from __future__ import annotations

import json
import os
from typing import Any

import inspect_bundles


def _read(run: Any, name: str) -> str:
    with open(os.path.join(run.folder, name), encoding="utf-8") as handle:
        return handle.read()


def fsdp(run: Any) -> dict[str, Any]:
    """Three things: the exported environment variables about FSDP, the text of accelerate.yaml, and the settings of the
    FSDP plugin that a worker builds from the variables. Raises any exception of the plugin.
    """
    from accelerate.utils import FullyShardedDataParallelPlugin

    variables = run.launched["environment"]
    # With either of these two variables, accelerate's plugin looks for a GPU, which this machine may not have.
    with inspect_bundles.environment(
        **{**variables, "FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
    ):
        plugin = FullyShardedDataParallelPlugin()
    names = ("sharding_strategy", "backward_prefetch", "forward_prefetch", "cpu_offload", "state_dict_type")
    reported = {name: getattr(plugin, name, None) for name in names}
    return {
        "exported": {name: value for name, value in variables.items() if name.startswith("FSDP_")},
        "file": _read(run, "accelerate.yaml"),
        "plugin": {
            name: value if value is None else getattr(value, "name", str(value)) for name, value in reported.items()
        },
    }


def prefetching(run: Any) -> dict[str, Any]:
    """Build FSDP's plugin for version 2 with the forward prefetching that accelerate.yaml states. Return the FSDP
    version that the plugin has.
    """
    from accelerate.utils import FullyShardedDataParallelPlugin

    requested = run.launched["environment"]["FSDP_FORWARD_PREFETCH"] == "true"
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, forward_prefetch=True if requested else None)
    return {"version": plugin.fsdp_version}


def mesh(run: Any) -> dict[str, Any]:
    """The device mesh of all processes, as accelerate checks and builds it. Raises any exception of accelerate."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    found, world = inspect_bundles.parallelism(run), run.plan["run"]["world_size"]

    class Accelerator:
        """A stand-in for the accelerator of an FSDP2 run with this many processes."""

        multi_device, num_processes, is_fsdp2, is_main_process, distributed_type = True, world, True, True, "FSDP"

    found._validate_accelerator(Accelerator)
    if not dist.is_initialized():
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    built = found.build_device_mesh("cpu")
    return {
        "shape": dict(zip(built.mesh_dim_names, built.shape, strict=True)),
        "readers": found.data_parallel_size,
        "shards": built["dp_shard_cp"].size(),
    }


def mesh_of_the_arguments(run: Any) -> dict[str, Any]:
    """Build the trainer's configuration class with an argument for the device mesh, although accelerate reads the mesh
    only from the launch. Raises any exception of the class.
    """
    made = inspect_bundles.config_class(run.plan)(**{**run.plan["arguments"], "use_cpu": True, "bf16": False,
                                            "parallelism_config": inspect_bundles.parallelism(run)})  # fmt: skip
    return {"ranks": made.parallelism_config.cp_size}


def flags(run: Any) -> dict[str, Any]:
    """Launch with command-line options instead of accelerate.yaml, and with the device mesh enabled. Raises any
    exception of the launcher.
    """
    from accelerate.commands import launch

    kind = {"FSDP": ["--use_fsdp", "--fsdp_version", "2"], "DEEPSPEED": ["--use_deepspeed"]}
    words = [
        *kind[run.plan["run"]["distributed_type"]],
        "--use_parallelism_config",
        "--num_processes",
        "8",
        "main.py",
    ]
    with inspect_bundles.environment(HF_HOME=run.folder):
        launch._validate_launch_command(launch.launch_command_parser().parse_args(words))
    return {}


def hooks(run: Any) -> dict[str, Any]:
    """Let accelerate prepare a model for context parallelism. Raises any exception of accelerate."""
    from accelerate.big_modeling import _attach_context_parallel_hooks

    _attach_context_parallel_hooks(run.model)
    return {}


def shared_inputs(run: Any) -> dict[str, Any]:
    """Prepare the first batch as the trainer does if several ranks share a sequence. Raises any exception of the
    trainer.
    """
    from types import SimpleNamespace

    found = inspect_bundles.parallelism(run)
    trainer = run.trainer
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.accelerator = SimpleNamespace(parallelism_config=found, maybe_context_parallel=lambda **_: None)
    _, inputs = trainer._prepare_context_parallel_inputs(trainer.model, dict(batch))
    return {"names": sorted(inputs), "length": inputs["input_ids"].shape[1], "ranks": found.cp_size}


def pieces(run: Any) -> dict[str, Any]:
    """Split the first batch for context parallelism by torch's own function. Return how many tokens each rank gets."""
    from torch.distributed.tensor.experimental._context_parallel._load_balancer import _create_default_load_balancer

    found = inspect_bundles.parallelism(run)
    batch = next(iter(run.trainer.get_train_dataloader()))
    length, ranks = batch["input_ids"].shape[1], found.cp_size
    import torch

    balanced = _create_default_load_balancer(length, ranks, "cpu") is not None
    return {"length": length, "balanced": balanced, "pieces": [len(one) for one in torch.arange(length).chunk(ranks)]}


def units(run: Any) -> dict[str, Any]:
    """Two numbers: how many FSDP units the model has, and how many of its modules have parameters of their own."""
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    model = run.trainer.model_wrapped
    found = [one for one in model.modules() if isinstance(one, FSDPModule | FullyShardedDataParallel)]
    holding = [one for one in model.modules() if list(one.parameters(recurse=False))]
    return {"units": len(found), "holding": len(holding)}


def cpu_optimizer(run: Any) -> dict[str, Any]:
    """If the optimizer's states are offloaded, return the class and options of the optimizer that accelerate gives to
    the trainer.
    """
    import deepspeed.ops.adam
    import torch
    from accelerate.utils.deepspeed import map_pytorch_optim_to_deepspeed
    from transformers import Trainer

    made: dict[str, Any] = {}

    class Recorder:
        """A class that stands in for DeepSpeed's CPU Adam, whose kernel would take minutes to compile."""

        def __init__(self, params: Any, **options: Any) -> None:
            made.update(options)

    deepspeed.ops.adam.DeepSpeedCPUAdam = Recorder
    kind, options = Trainer.get_optimizer_cls_and_kwargs(run.args)
    weight = torch.nn.Parameter(torch.ones(8))
    map_pytorch_optim_to_deepspeed(kind([weight], **{**options, "lr": 1e-3}))
    return {"asked": kind.__name__, "adam": bool(made), "decoupled": made.get("adamw_mode")}


def settings(run: Any) -> dict[str, Any]:
    """Three things: the keys in DeepSpeed's file, and the gradient clipping and the offload device that DeepSpeed reads
    from it.
    """
    from deepspeed.runtime.config import DeepSpeedConfig

    stated = json.loads(_read(run, "deepspeed.json"))
    stated.update(train_batch_size=stated["train_micro_batch_size_per_gpu"] * stated["gradient_accumulation_steps"])
    config = DeepSpeedConfig(stated)
    offload = config.zero_config.offload_optimizer
    return {
        "stated": sorted(stated),
        "clipping": config.gradient_clipping,
        "offload": None if offload is None else str(getattr(offload.device, "value", offload.device)),
    }


def worker(run: Any) -> dict[str, Any]:
    """Build DeepSpeed's plugin as a launched worker does. Raises any exception of the plugin."""
    from accelerate.utils import DeepSpeedPlugin

    with inspect_bundles.environment(**run.launched["environment"]):
        plugin = DeepSpeedPlugin(hf_ds_config=os.path.join(run.folder, "deepspeed.json"))
    return {"stage": plugin.zero_stage}


def placed(run: Any) -> dict[str, Any]:
    """The device to which the bundle offloads parameters, and whether the engine shards any parameter."""
    engine = run.trainer.model_wrapped
    requested = engine.zero_offload_param()
    return {
        "asked": None if requested is None else str(getattr(requested.device, "value", requested.device)),
        "sharded": any(hasattr(one, "ds_tensor") for one in engine.module.parameters()),
    }


def gradients(run: Any) -> dict[str, Any]:
    """The norm of the first step's gradient."""
    return {"norm": next(one["grad_norm"] for one in run.trainer.state.log_history if "grad_norm" in one)}


def waits(run: Any) -> dict[str, Any]:
    """Rank 0 sleeps for four seconds, and all other ranks wait for it. Raises the exception of the waiting ranks."""
    import time

    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    run.args  # noqa: B018  # building the arguments creates the process group
    if PartialState().process_index == 0:
        time.sleep(4)
    reported = ["done"]
    broadcast_object_list(reported)
    return {"told": reported[0]}


def group(run: Any) -> dict[str, Any]:
    """Make a process group with a single rank. Its backend is stated in the trainer's arguments. Raises any exception
    of accelerate.
    """
    from accelerate import PartialState

    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    with inspect_bundles.environment(**alone, MASTER_PORT=str(run.job["port"])):
        state = PartialState(cpu=True, backend=run.plan["arguments"]["ddp_backend"])
    return {"backend": state.backend}


def spread(run: Any) -> dict[str, Any]:
    """The largest difference between the trained weights of two processes after the run. It is 0 if gradients were
    averaged over the processes.
    """
    import torch.distributed as dist

    farthest = 0.0
    for _, part in sorted(run.trainer.accelerator.unwrap_model(run.trainer.model).named_parameters()):
        if part.requires_grad and part.numel():
            most, least = part.detach().clone(), part.detach().clone()
            dist.all_reduce(most, op=dist.ReduceOp.MAX)
            dist.all_reduce(least, op=dist.ReduceOp.MIN)
            farthest = max(farthest, float((most - least).abs().max()))
    return {"apart": farthest > 0.0, "farthest": farthest}


def experts(run: Any) -> dict[str, Any]:
    """Pass 32 rows of one token each through the model; return whether every row calls the same modules. ZeRO-3 needs
    this: all processes must call the same modules in the same order.
    """
    import torch

    model, seen, ran = run.model.eval(), [], set()
    for name, module in model.named_modules():
        module.register_forward_hook(lambda *_, name=name: ran.add(name))
    for token in range(3, 35):
        ran.clear()
        model(input_ids=torch.tensor([[token]]))
        seen.append(frozenset(ran))
    return {"same": len(set(seen)) == 1}


def frozen(run: Any) -> dict[str, Any]:
    """Train a model whose layers are frozen as the bundle states."""
    import bundled

    from runtime.features.model.frozen_weights import freeze

    freeze(bundled.bundle(run), run.model)
    run.trainer.train()
    return {"steps": run.trainer.state.global_step}


def forgets(run: Any) -> dict[str, Any]:
    """The norm of the gradient in a step whose last micro-batch has a gradient of 0. If the norm is 0, the gradients of
    the earlier micro-batches are lost.
    """
    trainer, calls = run.trainer, []
    compute, parts = trainer.compute_loss, trainer.args.gradient_accumulation_steps

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        loss = compute(*args, **kwargs)
        return loss * 0.0 if len(calls) % parts == 0 else loss

    trainer.compute_loss, trainer.args.logging_steps, trainer.args.max_steps = compute_loss, 1, 1
    trainer.train()
    norm = next(float(event["grad_norm"]) for event in trainer.state.log_history if "grad_norm" in event)
    return {"forgets": norm == 0.0, "norm": norm}
