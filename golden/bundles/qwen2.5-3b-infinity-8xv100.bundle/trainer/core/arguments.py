"""The process group and the arguments object: made once, in this order, and checked against what was planned."""

from __future__ import annotations

import os
from datetime import timedelta
from importlib import import_module
from typing import Any

from ..features import node_network
from .bundle import Bundle
from .errors import RunError

SINGLE = {"NO": "one process", "MULTI_GPU": "plain data parallel (DDP)", "MULTI_CPU": "plain data parallel on the CPU"}


def prepare_environment(bundle: Bundle) -> None:
    """Settings that must stand before torch is imported: a CPU run stays on the CPU of a machine that has GPUs.

    A run of one process sees one GPU. With more in sight transformers would spread every micro-batch over all of them
    (nn.DataParallel): trl 1.16 refuses that after the model is loaded, trl 0.18 trains with another global batch.
    """
    if bundle.on_cpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["DS_ACCELERATOR"] = "cpu"
    elif bundle.run["world_size"] == 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if bundle.run["nodes"] > 1:
        node_network.choose(os.environ)
    # transformers 5 would ask a service to convert pickled weights of the hub, and load what that proposes.
    os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "true"
    # ORPO's class stands in trl.experimental since trl 1.0, which would tell each process that it may change.
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    if bundle.run.get("project"):  # the argument `project` is trackio's; wandb knows the variable only
        os.environ.setdefault("WANDB_PROJECT", str(bundle.run["project"]))


def build_arguments(bundle: Bundle) -> Any:
    """The arguments object of the run, built once; nothing copies or replaces it later.

    On several CPU processes, and for DeepSpeed on one, the process group is made here and handed over
    (``use_configured_state``): transformers passes ``ddp_timeout`` on for GPUs only, and accelerate 1.15 picks no
    backend for DeepSpeed on a CPU, so that each of two ranks would believe to be alone, and one rank would compile
    DeepSpeed's shared-memory operator for minutes (TrainingArguments._setup_devices, PartialState, executed).
    """
    values = dict(bundle.arguments)
    if values.get("deepspeed"):
        values["deepspeed"] = bundle.inside(values["deepspeed"])
    if values.get("chat_template_path"):
        values["chat_template_path"] = bundle.inside(values["chat_template_path"])
    values.setdefault("disable_tqdm", True)
    if values.get("use_vllm") and os.environ.get("XPC_VLLM_HOST"):  # a host is the launch's, and not the bundle's
        values["vllm_server_host"] = os.environ["XPC_VLLM_HOST"]
    if bundle.run["world_size"] > 1:
        _one_timeout(timedelta(seconds=values.get("ddp_timeout", 1800)))
    if bundle.on_cpu and (bundle.run["world_size"] > 1 or values.get("deepspeed")):
        _cpu_group(bundle, values)
        values["accelerator_config"] = {**(values.get("accelerator_config") or {}), "use_configured_state": True}
    elif bundle.run["world_size"] > 1:
        _no_peer_to_peer()
    if bundle.method in ("grpo", "rloo") and bundle.run["zero_stage"] == 3:
        _keep_numbers_of_modules()
    make = named(bundle.config)
    try:
        return make(**values)
    except TypeError as error:
        raise RunError(f"{bundle.config} does not take these arguments: {error}") from error


def named(dotted: str) -> Any:
    """The class of a dotted name. Raises RunError when the installed stack has none of that name."""
    module, _, name = dotted.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise RunError(f"this stack has no {dotted}: {str(error).splitlines()[0]}") from error


def _one_timeout(timeout: timedelta) -> None:
    """Lets every process group wait as long as the first: transformers passes ``ddp_timeout`` on for that one only.

    DeepSpeed makes the group that it trains with by ``new_group``, and a device mesh makes its own: theirs would wait
    10 minutes with NCCL and 30 with gloo, whatever was written (torch 2.13 ``_get_default_timeout``; executed: a cable
    was taken out between two nodes of a ZeRO-2 run).
    """
    from torch.distributed import distributed_c10d

    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        setattr(distributed_c10d, name, timeout)


def _no_peer_to_peer() -> None:
    """Switches off what several RTX 40 cards cannot do under drivers before 550.40.07.

    `accelerate launch` does so by itself; under torchrun accelerate raises instead (accelerate 1.15 `state.py`).
    """
    from accelerate.utils import check_cuda_p2p_ib_support

    if not check_cuda_p2p_ib_support():
        for name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"):
            os.environ.setdefault(name, "1")


def _cpu_group(bundle: Bundle, values: dict[str, Any]) -> None:
    import torch
    from accelerate import PartialState

    zero = bundle.run["distributed_type"] == "DEEPSPEED"
    if zero:
        # What accelerate's launcher exports; torchrun does not, and PartialState reads nothing else.
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
        _no_shared_memory_op()
    timeout = timedelta(seconds=values.get("ddp_timeout", 1800))
    group = PartialState(cpu=not zero, backend="gloo", timeout=timeout)
    if group.device.type == "cpu":
        # accelerate 1.4 numbers it, and torch restores no optimizer of a checkpoint to a "cpu:0".
        group.device = torch.device("cpu")
    if bundle.run["zero_stage"] == 3:
        _wait_for_every_gather()


def _no_shared_memory_op() -> None:
    """Keeps DeepSpeed from compiling a C++ extension at the start of a CPU run (deepspeed/comm/torch.py, build_shm_op).

    It would need a compiler and a minute or two, serves inference only, and its build folder is shared by all versions
    of DeepSpeed that a user has: the build of one breaks another ("no attribute 'vector_kernel_level'").
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def _wait_for_every_gather() -> None:
    """Makes DeepSpeed 0.16.8 wait for each parameter that it gathers; DeepSpeed 0.19.8 does so by itself.

    It starts many gathers and waits for the last only (partition_parameters.py, _allgather_params_coalesced). That is
    enough on a CUDA stream; with gloo an earlier one may end later, over weights that were just loaded: one ZeRO-3 run
    in four began from garbage. With one parameter at a time, the last one is the only one.
    """
    import deepspeed
    from deepspeed.runtime.zero.partition_parameters import Init

    if tuple(map(int, deepspeed.__version__.split("+")[0].split(".")[:2])) >= (0, 19):
        return
    gather = Init._allgather_params_coalesced

    def one_by_one(self: Any, param_list: list[Any], hierarchy: int = 0, quantize: bool = False) -> None:
        for param in param_list:
            gather(self, [param], hierarchy, quantize)

    Init._allgather_params_coalesced = one_by_one


def _keep_numbers_of_modules() -> None:
    """Lets the modules of a ZeRO-3 model keep the numbers that DeepSpeed gave them first.

    trl takes DeepSpeed's hooks off for each generation and puts them on again, which counts all modules anew and goes
    on from the last number (parameter_offload.py of 0.16 and 0.19, ``count=[0]``). A trace of modules that was begun
    before is then looked up by numbers that are gone: with adapters and DeepSpeed 0.16.8 the second step ends with "pop
    from an empty deque".
    """
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload

    register = DeepSpeedZeRoOffload._register_deepspeed_module

    def once(self: Any, module: Any, count: list[int] | None = None) -> None:
        if count is not None:  # a module inside of the one that was asked for
            register(self, module, count)
            return
        numbers = {one: one.ds_id for one in module.modules() if hasattr(one, "ds_id")}
        register(self, module)
        for one, number in numbers.items():
            one.ds_id = number

    DeepSpeedZeRoOffload._register_deepspeed_module = once


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
