"""Inspect the objects that the libraries build from bundles. This program runs in a target's interpreter, and reads and
prints JSON.

`echo '["a.bundle", ...]' | python inspect_bundles.py` prints one object per bundle: what the launcher would start, and
the environment variables that it would export; how the libraries' objects deviate from the bundle (`problems`, empty if
they do not); and the learning rates of the schedule.

The machine needs no GPU. transformers has functions that say whether the GPU has bf16 and tf32, and a property with the
number of processes. `pretend` replaces all of them, so that they return the values for the bundle's hardware.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import json
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["DS_ACCELERATOR"] = "cpu"
STRICT = (FutureWarning, DeprecationWarning, UserWarning)
TOTAL = 1000
"""The number of steps of the run for which learning rates are computed."""


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """A context manager that sets these environment variables, and restores the environment at its end."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def parallelism(run: Any) -> Any:
    """accelerate's configuration of parallelism (how processes share the work), built from environment variables as in
    a launched process.
    """
    from accelerate.parallelism_config import ParallelismConfig

    with environment(**run.launched["environment"]):
        return ParallelismConfig()


def plain(value: Any) -> Any:
    """Convert a value for JSON: an enumeration to its value, a configuration to a mapping, a tuple to a list."""
    value = getattr(value, "value", value)
    value = value.to_dict() if hasattr(value, "to_dict") else value
    return list(value) if isinstance(value, tuple) else value


@functools.cache
def _parser() -> Any:
    """The argument parser of accelerate's launcher. Making the parser is slow, so it is made once for all bundles."""
    from accelerate.commands import launch

    return launch.launch_command_parser()


def launched(folder: str) -> dict[str, Any]:
    """What `accelerate launch` would start: the launcher, its processes, and their environment variables."""
    from accelerate.commands import launch
    from accelerate.utils import launch as prepare

    words = ["--config_file", os.path.join(folder, "accelerate.yaml"), "main.py"]
    plan = read(folder)
    if plan["run"]["nodes"] > 1:
        words[2:2] = ["--machine_rank", "0", "--main_process_ip", "127.0.0.1", "--main_process_port", "29500"]
    seen: dict[str, Any] = {}

    def record(name: str, variables: Any) -> Any:
        def instead(args: Any) -> None:
            seen.update(launcher=name, processes=args.num_processes, nodes=args.num_machines)
            seen["environment"] = variables(args)

        return instead

    def simple(args: Any) -> Any:
        return prepare.prepare_simple_launcher_cmd_env(args)[1]

    def deepspeed(args: Any) -> Any:
        return prepare.prepare_deepspeed_cmd_env(args)[1]

    replaced = {
        "simple_launcher": record("simple", simple),
        "multi_gpu_launcher": record("multi_gpu", prepare.prepare_multi_gpu_env),
        "deepspeed_launcher": record("deepspeed", deepspeed),
    }
    originals = {name: getattr(launch, name) for name in replaced}
    for name, function in replaced.items():
        setattr(launch, name, function)
    # not the default port, which another program on this machine may use
    requested, prepare.is_port_in_use = prepare.is_port_in_use, lambda *_: False
    try:
        launch.launch_command(_parser().parse_args(words))
    finally:
        prepare.is_port_in_use = requested
        for name, function in originals.items():
            setattr(launch, name, function)
    kept = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")
    seen["environment"] = {k: v for k, v in seen["environment"].items() if k.startswith(kept)}
    return seen


def config_class(plan: dict[str, Any]) -> Any:
    """The class of the trainer's arguments, from its dotted path in trainer_args.json."""
    module, _, name = plan["config"].rpartition(".")
    return getattr(importlib.import_module(module), name)


def pretend(plan: dict[str, Any]) -> None:
    """Make the libraries believe that this process is one of the run's processes: with the capability of the run's GPU,
    and with the run's number of processes.
    """
    import torch.distributed as dist
    import transformers.training_args as module
    from accelerate.state import AcceleratorState
    from torch.testing._internal.distributed.fake_pg import FakeStore

    AcceleratorState._reset_state(reset_partial_state=True)
    if dist.is_initialized():
        dist.destroy_process_group()
    gpu, world = plan["run"]["gpu"], plan["run"]["world_size"]
    ampere = gpu is not None and tuple(gpu["capability"]) >= (8, 0)
    module.is_torch_bf16_gpu_available = lambda *_: ampere
    module.is_torch_tf32_available = lambda: ampere
    module.TrainingArguments.world_size = property(lambda _: world)
    if plan["arguments"].get("ddp_backend") is not None:  # the class asks torch for the process group
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)


def built(folder: str, plan: dict[str, Any]) -> Any:
    """The object of the trainer's configuration class, built from the bundle's arguments without changes."""
    pretend(plan)
    values = dict(plan["arguments"])
    if "deepspeed" in values:
        values["deepspeed"] = os.path.join(folder, values["deepspeed"])
    return config_class(plan)(**values)


class Device:
    """Stands in for DeepSpeed's accelerator; DeepSpeed's configuration only asks for the accelerator's name."""

    def __init__(self, name: str) -> None:
        self.device_name = lambda: name


def deepspeed(folder: str, plan: dict[str, Any], args: Any) -> list[str]:
    """Read the DeepSpeed file with DeepSpeed's reader and with transformers' reader. Compare both results with the
    trainer's arguments.
    """
    import deepspeed.runtime.config as reader
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    run, path, problems = plan["run"], os.path.join(folder, "deepspeed.json"), []

    class World:
        """Replaces torch.distributed, as if this were a process of a run with this many processes."""

        get_rank = staticmethod(lambda *_: 0)
        get_world_size = staticmethod(lambda *_: run["world_size"])
        is_initialized = staticmethod(lambda: True)

    original, reader.dist = reader.dist, World
    disks = importlib.import_module("deepspeed.runtime.swap_tensor.aio_config")
    requested, disks.get_accelerator = disks.get_accelerator, lambda: Device(run["device"])
    try:
        config = reader.DeepSpeedConfig(path)
    finally:
        reader.dist, disks.get_accelerator = original, requested
    half = (config.float16_config.enabled, config.bfloat16_config.enabled) if hasattr(config, "float16_config") else (
        config.fp16_enabled, config.bfloat16_enabled
    )  # fmt: skip
    seen = {
        "stage": config.zero_optimization_stage, "train_batch_size": config.train_batch_size,
        "micro": config.train_micro_batch_size_per_gpu, "accumulation": config.gradient_accumulation_steps,
        "clip": config.gradient_clipping, "fp16": half[0], "bf16": half[1],
    }  # fmt: skip
    wanted = {
        "stage": run["zero_stage"], "micro": run["micro"],
        "train_batch_size": run["gbs"] * run.get("context_parallel", 1),
        "accumulation": run["accumulation"], "clip": args.max_grad_norm, "fp16": args.fp16, "bf16": args.bf16,
    }  # fmt: skip
    problems += [f"DeepSpeed reads {k}={v}, stated {wanted[k]}" for k, v in seen.items() if v != wanted[k]]
    with open(path, encoding="utf-8") as handle:
        stated = json.load(handle)
    accepted = {name for key, field in type(config.zero_config).model_fields.items() for name in (key, field.alias)}
    problems += [f"DeepSpeed has no zero_optimization.{k}" for k in stated["zero_optimization"] if k not in accepted]

    class Model:
        config = None

    theirs = HfTrainerDeepSpeedConfig(path)
    theirs.trainer_config_process(args)
    problems += [f"mismatch: {one}" for one in theirs.mismatches]
    theirs.trainer_config_finalize(args, Model(), TOTAL)
    if args.save_on_each_node:
        # transformers adds this key to the DeepSpeed file's contents
        stated["checkpoint"] = {**stated.get("checkpoint", {}), "use_node_local_storage": True}
    problems += [] if theirs.config == stated else ["transformers changes the DeepSpeed file"]
    return problems


def sharded(variables: dict[str, str]) -> dict[str, Any]:
    """The FSDP settings that accelerate's own plugin reads from the launcher's variables.

    FSDP1 has an option to copy weights from rank 0 to the other ranks. This option is read from the variables directly,
    because the plugin would need a GPU for it.
    """
    from accelerate.utils import FullyShardedDataParallelPlugin

    quiet = {"FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
    with environment(**{**variables, **({} if variables.get("FSDP_VERSION") == "2" else quiet)}):
        plugin = FullyShardedDataParallelPlugin()
    names = ("fsdp_version", "reshard_after_forward", "sharding_strategy", "state_dict_type", "cpu_offload",
             "activation_checkpointing", "cpu_ram_efficient_loading")  # fmt: skip
    out = {name: getattr(plugin, name, None) for name in names}
    return {k: v if v is None or isinstance(v, bool | int) else getattr(v, "name", str(v)) for k, v in out.items()}


def rates(args: Any, steps: int = TOTAL) -> list[float]:
    """Learning rates of a run of TOTAL steps: the rate before the first step, and the rate after each of the first
    `steps` steps. For a schedule that depends on a metric, only the rate before the first step.
    """
    import torch
    from transformers import get_scheduler

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=args.learning_rate)
    schedule = get_scheduler(
        args.lr_scheduler_type, optimizer, args.get_warmup_steps(TOTAL), TOTAL, args.lr_scheduler_kwargs
    )
    out = [optimizer.param_groups[0]["lr"]]
    for _ in range(0 if args.lr_scheduler_type.value in ("reduce_lr_on_plateau", "greedy") else steps):
        optimizer.step()
        schedule.step()
        out.append(optimizer.param_groups[0]["lr"])
    return out


def _counts(one: warnings.WarningMessage) -> bool:
    """Whether a warning counts as a problem of the bundle. Two kinds of warnings do not count: warnings about pydantic
    models, which DeepSpeed 0.16 causes itself, and torch's warnings about its own scripts.
    """
    own = one.category.__module__.startswith("pydantic") or "torch.jit." in str(one.message)
    return issubclass(one.category, STRICT) and not own


def read(folder: str) -> dict[str, Any]:
    """Read the bundle's trainer_args.json."""
    with open(os.path.join(folder, "trainer_args.json"), encoding="utf-8") as handle:
        return dict(json.load(handle))


SPELLINGS = {"include_num_input_tokens_seen": {True: "all", False: "no"}}
"""Maps arguments to the values that the configuration class stores in another form: from the value in the bundle to the
stored value.
"""


def same(name: str, stated: Any, seen: Any) -> bool:
    """Whether an argument of the built object has the value that the bundle states. The class may have converted the
    value to another type.
    """
    one = name == "loss_type" and stated == [seen]  # DPO of trl 0.24 replaces a list that has one loss by this loss
    return bool(seen == stated or one or (name in SPELLINGS and SPELLINGS[name].get(stated) == seen))


def inspect_bundle(folder: str, brief: bool = False) -> dict[str, Any]:
    """Return what the libraries build from a bundle. `problems` lists how this deviates from the bundle. With `brief`,
    the learning rates and the optimizer are left out.
    """
    plan, problems = read(folder), []
    run = plan["run"]
    with warnings.catch_warnings(record=True) as caught, environment():
        warnings.simplefilter("always")
        seen = launched(folder)
        args = built(folder, plan)
        for name, stated in plan["arguments"].items():
            if name != "deepspeed" and not same(name, stated, plain(getattr(args, name))):
                problems.append(f"{name}: stated {stated!r}, read back {plain(getattr(args, name))!r}")
        if run["zero_stage"]:
            problems += deepspeed(folder, plan, args)
    problems += [f"{one.category.__name__}: {one.message}" for one in caught if _counts(one)]
    if seen["processes"] != run["world_size"] or seen["nodes"] != run["nodes"]:
        problems.append(f"the launcher starts {seen['processes']} processes on {seen['nodes']} nodes")
    wanted = "bf16" if args.bf16 else "fp16" if args.fp16 else "no"
    mixed = seen["environment"].get("ACCELERATE_MIXED_PRECISION", "no")
    if mixed not in ((wanted, "no") if run["zero_stage"] else (wanted,)):
        problems.append(f"the launcher exports {mixed}, and the arguments say {wanted}")
    answer: dict[str, Any] = {"launch": seen, "problems": problems, "rates": rates(args, 2 if brief else TOTAL)}
    if run["distributed_type"] == "FSDP":
        answer["fsdp"] = sharded(seen["environment"])
    if brief:
        return answer
    from transformers import Trainer

    if not args.optim.value.endswith("bit"):
        answer["optimizer"] = Trainer.get_optimizer_cls_and_kwargs(args)[0].__name__
    return answer


TELLING = ("deprecat", "mismatch", "will be removed", "ignored", "has no effect", "overrid")
"""Words by which a record of a library's log is recognized as one about the bundle's values."""


def _remember_yaml() -> None:
    """Cache `yaml.safe_load` by its text. Launcher files are often equal, so this halves the time."""
    import yaml

    parse = yaml.safe_load
    parsed: dict[str | bytes, Any] = {}

    def remembered(stream: Any) -> Any:
        text = stream if isinstance(stream, str | bytes) else stream.read()
        if text not in parsed:
            parsed[text] = parse(text)
        return copy.deepcopy(parsed[text])

    yaml.safe_load = remembered


def many(folders: list[str]) -> dict[str, list[str]]:
    """Map the folder of each bundle to the bundle's problems. A problem is a difference that a brief inspection finds,
    an exception, or a log record.
    """
    import importlib.metadata

    import deepspeed  # noqa: F401
    from small_run import listening

    # without the cache, version() would take a quarter of the time
    importlib.metadata.version = functools.cache(importlib.metadata.version)
    _remember_yaml()
    answers: dict[str, list[str]] = {}
    for folder in folders:
        with listening() as output:
            try:
                answers[folder] = list(inspect_bundle(folder, brief=True)["problems"])
            except (Exception, SystemExit) as error:
                answers[folder] = [f"{type(error).__name__}: {error}"]
        answers[folder] += [one for one in output if any(word in one.lower() for word in TELLING)]
    return answers


def main() -> None:
    """Read names of folders from standard input, and print a JSON object for each. An exception becomes a problem of
    the folder.
    """
    import deepspeed  # noqa: F401  # imported early: its warnings at import are not problems of a bundle
    from transformers.utils import logging

    logging.set_verbosity_error()
    answers: dict[str, Any] = {}
    for folder in json.load(sys.stdin):
        try:
            answers[folder] = inspect_bundle(folder)
        except Exception as error:
            answers[folder] = {"problems": [f"{type(error).__name__}: {error}"]}
    print("\n" + json.dumps(answers))


if __name__ == "__main__":
    main()
