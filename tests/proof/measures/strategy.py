"""What accelerate and DeepSpeed make of a launch: the plugins of the workers, the mesh, the wrapped model."""

from __future__ import annotations

import json
import os
from typing import Any

import inspect_bundles


def _read(run: Any, name: str) -> str:
    with open(os.path.join(run.folder, name), encoding="utf-8") as handle:
        return handle.read()


def fsdp(run: Any) -> dict[str, Any]:
    """What was exported for FSDP, and what its plugin is in a worker. Raises what the plugin raises."""
    from accelerate.utils import FullyShardedDataParallelPlugin

    variables = run.launched["environment"]
    # Copying weights to the other ranks asks for a GPU at once.
    with inspect_bundles.environment(
        **{**variables, "FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
    ):
        plugin = FullyShardedDataParallelPlugin()
    names = ("sharding_strategy", "backward_prefetch", "forward_prefetch", "cpu_offload", "state_dict_type")
    told = {name: getattr(plugin, name, None) for name in names}
    return {
        "exported": {name: value for name, value in variables.items() if name.startswith("FSDP_")},
        "file": _read(run, "accelerate.yaml"),
        "plugin": {
            name: value if value is None else getattr(value, "name", str(value)) for name, value in told.items()
        },
    }


def prefetching(run: Any) -> dict[str, Any]:
    """FSDP2's plugin, given what the file says of prefetching in the forward pass."""
    from accelerate.utils import FullyShardedDataParallelPlugin

    asked = run.launched["environment"]["FSDP_FORWARD_PREFETCH"] == "true"
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, forward_prefetch=True if asked else None)
    return {"version": plugin.fsdp_version}


def mesh(run: Any) -> dict[str, Any]:
    """The device mesh of all processes, as accelerate would check and build it. Raises what it raises."""
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    found, world = inspect_bundles.parallelism(run), run.plan["run"]["world_size"]

    class Accelerator:
        """Stands for the accelerator of an FSDP2 run of this many processes."""

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
    """The trainer's configuration class with the mesh of the file as its argument. Raises what it raises."""
    made = inspect_bundles.config_class(run.plan)(**{**run.plan["arguments"], "use_cpu": True, "bf16": False,
                                            "parallelism_config": inspect_bundles.parallelism(run)})  # fmt: skip
    return {"ranks": made.parallelism_config.cp_size}


def flags(run: Any) -> dict[str, Any]:
    """The same launch asked for by flags, with the mesh switched on. Raises what the launcher raises."""
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
    """accelerate's preparation of a model for context parallelism. Raises what it raises."""
    from accelerate.big_modeling import _attach_context_parallel_hooks

    _attach_context_parallel_hooks(run.model)
    return {}


def shared_inputs(run: Any) -> dict[str, Any]:
    """The first batch, prepared as the trainer does where ranks share a sequence. Raises what it raises."""
    from types import SimpleNamespace

    found = inspect_bundles.parallelism(run)
    trainer = run.trainer
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.accelerator = SimpleNamespace(parallelism_config=found, maybe_context_parallel=lambda **_: None)
    _, inputs = trainer._prepare_context_parallel_inputs(trainer.model, dict(batch))
    return {"names": sorted(inputs), "length": inputs["input_ids"].shape[1], "ranks": found.cp_size}


def pieces(run: Any) -> dict[str, Any]:
    """The lengths of the pieces that each rank gets of the collator's first batch, by torch's own splitting."""
    from torch.distributed.tensor.experimental._context_parallel._load_balancer import _create_default_load_balancer

    found = inspect_bundles.parallelism(run)
    batch = next(iter(run.trainer.get_train_dataloader()))
    length, ranks = batch["input_ids"].shape[1], found.cp_size
    import torch

    balanced = _create_default_load_balancer(length, ranks, "cpu") is not None
    return {"length": length, "balanced": balanced, "pieces": [len(one) for one in torch.arange(length).chunk(ranks)]}


def units(run: Any) -> dict[str, Any]:
    """How many units FSDP has made of the model, and of how many modules that hold parameters themselves."""
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    model = run.trainer.model_wrapped
    found = [one for one in model.modules() if isinstance(one, FSDPModule | FullyShardedDataParallel)]
    holding = [one for one in model.modules() if list(one.parameters(recurse=False))]
    return {"units": len(found), "holding": len(holding)}


def cpu_optimizer(run: Any) -> dict[str, Any]:
    """What accelerate makes of the trainer's optimizer where its states are offloaded: the class and its switches."""
    import deepspeed.ops.adam
    import torch
    from accelerate.utils.deepspeed import map_pytorch_optim_to_deepspeed
    from transformers import Trainer

    made: dict[str, Any] = {}

    class Recorder:
        """Stands for DeepSpeed's CPU Adam, whose kernel would be compiled for minutes."""

        def __init__(self, params: Any, **options: Any) -> None:
            made.update(options)

    deepspeed.ops.adam.DeepSpeedCPUAdam = Recorder
    kind, options = Trainer.get_optimizer_cls_and_kwargs(run.args)
    weight = torch.nn.Parameter(torch.ones(8))
    map_pytorch_optim_to_deepspeed(kind([weight], **{**options, "lr": 1e-3}))
    return {"asked": kind.__name__, "adam": bool(made), "decoupled": made.get("adamw_mode")}


def settings(run: Any) -> dict[str, Any]:
    """DeepSpeed's own reading of its file, beside what the file says."""
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
    """DeepSpeed's plugin in a worker that the launcher started. Raises what it raises."""
    from accelerate.utils import DeepSpeedPlugin

    with inspect_bundles.environment(**run.launched["environment"]):
        plugin = DeepSpeedPlugin(hf_ds_config=os.path.join(run.folder, "deepspeed.json"))
    return {"stage": plugin.zero_stage}


def placed(run: Any) -> dict[str, Any]:
    """Whether the engine was asked to offload parameters, and whether it shards or offloads any."""
    engine = run.trainer.model_wrapped
    asked = engine.zero_offload_param()
    return {
        "asked": None if asked is None else str(getattr(asked.device, "value", asked.device)),
        "sharded": any(hasattr(one, "ds_tensor") for one in engine.module.parameters()),
    }


def gradients(run: Any) -> dict[str, Any]:
    """The norm of the first step's gradient."""
    return {"norm": next(one["grad_norm"] for one in run.trainer.state.log_history if "grad_norm" in one)}


def waits(run: Any) -> dict[str, Any]:
    """Rank 0 works for four seconds while the others wait for it. Raises what they raise."""
    import time

    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    run.args  # noqa: B018  # the process group
    if PartialState().process_index == 0:
        time.sleep(4)
    told = ["done"]
    broadcast_object_list(told)
    return {"told": told[0]}


def group(run: Any) -> dict[str, Any]:
    """The process group of a single rank, with the backend that the arguments name. Raises what accelerate raises."""
    from accelerate import PartialState

    alone = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    with inspect_bundles.environment(**alone, MASTER_PORT=str(run.job["port"])):
        state = PartialState(cpu=True, backend=run.plan["arguments"]["ddp_backend"])
    return {"backend": state.backend}


def spread(run: Any) -> dict[str, Any]:
    """How far the trained weights of the processes lie apart after the run: 0 where gradients were averaged."""
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
    """Whether each row of one token runs the same modules, which are what ZeRO-3 gathers one after the other."""
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
    """The steps of a model whose layers are frozen as the bundle says."""
    import bundled

    from runtime.features.model.frozen_weights import freeze

    freeze(bundled.bundle(run), run.model)
    run.trainer.train()
    return {"steps": run.trainer.state.global_step}


def forgets(run: Any) -> dict[str, Any]:
    """The norm of a step whose last micro-batch has no gradient: that of the others, or nothing where they are lost."""
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
