"""Run one proof with the stack's libraries, in the stack's interpreter and with tiny models: all stages from reading
the bundle to the saved model.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import bundled
import inspect_bundles
import silent_effect
import tiny_models
import variant

STAGES = ("launch", "config", "deepspeed", "load", "init", "train", "save")
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class SmallRun:
    """A bundle, and the objects that the libraries build from the bundle: arguments, model, rows, trainer. Each object
    is built when it is first needed.

    `plan` is trainer_args.json, `job` is the job from prove.py. A proof's `measure` gets this object.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.folder: str = job["folder"]
        self.plan = inspect_bundles.read(self.folder)
        self.watch: silent_effect.Watch | None = None
        self.family: str = job["family"]
        self.own_cpu = self.plan["run"]["gpu"] is None
        self.stated = {name: self.plan["arguments"].get(name) for name in ("bf16", "fp16")}
        if (self.plan.get("lora") or {}).get("bits") and not self.own_cpu:
            _unpacked_for_the_cpu()
        if job["on_cpu"]:
            variant.on_cpu(self.plan, job, keep=(*job["keep"], *job["changed"]))

    @cached_property
    def launched(self) -> dict[str, Any]:
        """The launcher, its processes, and their environment variables, as `accelerate launch` would start them for the
        bundle.
        """
        return inspect_bundles.launched(self.folder)

    @cached_property
    def args(self) -> Any:
        """The object of the trainer's configuration class, built from the bundle's arguments."""
        if not self.job["on_cpu"] and not self.own_cpu:
            return inspect_bundles.built(self.folder, self.plan)
        values = dict(self.plan["arguments"])
        if values.get("deepspeed"):
            values["deepspeed"] = os.path.join(self.folder, values["deepspeed"])
            if self.job["on_cpu"] and not values.get("use_cpu"):
                self._group(values)
        if self.sharded:
            _sharded_group(values)
        return inspect_bundles.config_class(self.plan)(**values)

    def _group(self, values: dict[str, Any]) -> None:
        """Make the process group of a DeepSpeed run on the CPU in the way in which a bundle's own program makes it."""
        sys.path.append(REPOSITORY)
        from runtime.features.distributed.cpu_processes import make_group
        from runtime.library_internals.deepspeed_engine import (
            keep_numbers_of_modules,
            no_shared_memory_op,
            wait_for_every_gather,
        )

        class Bundle:
            run = self.plan["run"]

        no_shared_memory_op()
        make_group(Bundle, values)
        if self.plan["run"]["zero_stage"] == 3:
            if self.plan["stack"]["zero3_gathers_early"]:
                wait_for_every_gather()
            if self.job.get("checked") and "num_generations" in values:
                keep_numbers_of_modules()
        values["accelerator_config"] = {**(values.get("accelerator_config") or {}), "use_configured_state": True}

    @property
    def sharded(self) -> bool:
        """Whether this run on CPUs uses FSDP over gloo, because its spec uses FSDP on GPUs."""
        return bool(self.job["on_cpu"] and "fsdp" in self.job["keep"])

    @cached_property
    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        found = AutoTokenizer.from_pretrained(tiny_models.tokenizer())
        found.model_input_names = ["input_ids", "attention_mask"]  # no token_type_ids, which the model refuses
        return found

    @cached_property
    def model(self) -> Any:
        """The tiny model of the job's family, with the bundle's dtype and attention."""
        # The model's files are written before the arguments are built: DeepSpeed's arguments switch zero.Init on, and
        # a model under zero.Init has no weights to save.
        tiny_models.model(self.family)
        self.args  # noqa: B018
        if self.job.get("checked"):
            return bundled.load(self)
        return tiny_models.load(self.family, self.plan["model"], self.kind)

    @property
    def kind(self) -> str:
        """`reward` if the model has a single output number, otherwise `causal`."""
        return "reward" if self.plan["config"].endswith("RewardConfig") else "causal"

    @cached_property
    def rows(self) -> Any:
        """The training rows, with the columns of the bundle's first source. If the job checks a bundle whose sources
        have several shapes, there are rows of every shape.
        """
        sources = self.plan["data"]["sources"]
        if self.job.get("checked") and not self.job.get("library") and not self.job["shape"]:
            kinds = {one["kind"]: one for one in sources if one.get("kind")}
            if len(kinds) > 1:
                return self._mixed(list(kinds.values()))
        return self._alike(sources[0])

    def _mixed(self, sources: list[dict[str, Any]]) -> Any:
        """Rows of several shapes, joined as the runtime joins them."""
        sys.path.append(REPOSITORY)
        import datasets

        from runtime.features.rows import mixed_shapes

        parts = [mixed_shapes.marked(one, self._alike(one)) for one in sources]
        return datasets.concatenate_datasets(parts).shuffle(seed=0).select(range(self.job["rows"]))

    def _alike(self, source: dict[str, Any]) -> Any:
        shape = self.job["shape"] or source["shape"]
        made = tiny_models.rows(shape, self.job["rows"])
        if source.get("wording") == "chat":
            made = made.map(tiny_models.as_turns)
        # the rewards from the registry compare completions with this column
        if shape == "prompt" and self.job.get("checked"):
            made = made.add_column("solution", made["answer"][:])
        return made

    @cached_property
    def held(self) -> Any:
        """The evaluation rows; None if the bundle has no evaluation rows."""
        data = self.plan["data"]
        sets = data.get("evaluation")
        if sets:
            from datasets import DatasetDict

            made = {one["name"]: self.rows.select(range(4)) for one in sets["sets"]}
            rows = DatasetDict(made)
            if self.job.get("checked") and not self.job.get("library"):
                sys.path.append(REPOSITORY)
                from runtime.features.rows.evaluation_sets import Sets

                rows = Sets(made)
            return rows if sets["named"] else next(iter(rows.values()))
        return self.rows.select(range(4)) if data["holdout"] or data["eval_split"] else None

    @property
    def maker(self) -> Any:
        """TRL's own trainer class for the class of arguments that the plan states."""
        module, _, name = self.plan["config"].rpartition(".")
        return getattr(importlib.import_module(module), name.removesuffix("Config") + "Trainer")

    @cached_property
    def trainer(self) -> Any:
        """TRL's trainer for the bundle, or the bundle's own trainer if the job runs a checked bundle."""
        if self.job.get("checked") and not self.job.get("library"):
            return self._watched(bundled.trainer(self))
        maker = self.maker
        more: dict[str, Any] = {}
        method = (self.plan.get("method") or {}).get("name", "sft")
        if method in ("grpo", "rloo"):
            rewards = (self.plan["method"] or {}).get("rewards") or [{}]
            more["reward_funcs"] = [tiny_models.reward(i) for i, _ in enumerate(rewards)]
        if method == "distill" and self.plan["method"]["teacher"] is not None:
            more["teacher_model"] = tiny_models.load(self.family, self.plan["model"], self.kind)
        if self.plan.get("lora"):
            more["peft_config"] = tiny_models.adapters(self.plan["lora"], method)
        elif self._given_a_reference(method):
            more["ref_model"] = tiny_models.load(self.family, self.plan["model"], self.kind)
        made = maker(model=self.model, args=self.args, train_dataset=self.rows, eval_dataset=self.held,
                     processing_class=self.tokenizer, **more)  # fmt: skip
        if self.plan.get("lora"):
            made.create_optimizer = without_empty_groups(made.create_optimizer)
        if self.job.get("checked"):
            return self._watched(made)
        if self.job.get("stop"):
            made.add_callback(stopping(self.job["steps"]))
        return made

    def _watched(self, made: Any) -> Any:
        made.add_callback(stopping(self.job["steps"]))
        self.watch = silent_effect.Watch(self, made)
        return made

    def _given_a_reference(self, method: str) -> bool:
        """Whether a bundle's own program gives the trainer a frozen copy of the model as its reference
        (features/method/reference.py).
        """
        precomputed = self.plan["arguments"].get("precompute_ref_log_probs")
        return method in self.plan["stack"]["reference_given"] and not precomputed

    def run(self, stage: str) -> None:
        """Run one stage. Raises any exception of the libraries."""
        if stage == "launch":
            self.launched  # noqa: B018
        elif stage == "config":
            self.args  # noqa: B018
        elif stage == "deepspeed":
            for problem in inspect_bundles.deepspeed(self.folder, self.plan, self.args):
                warnings.warn(problem, UserWarning, stacklevel=1)
        elif stage == "load":
            self.model  # noqa: B018
        elif stage == "init":
            self.trainer  # noqa: B018
        elif stage == "train":
            self.trainer.train()
        elif stage == "save":
            self.trainer.save_model(self.plan["arguments"]["output_dir"])


def without_empty_groups(create: Any) -> Any:
    """Wrap a trainer's ``create_optimizer`` as a bundle's own program does (features/optimizer/empty_groups.py).

    Without the wrapper, DeepSpeed 0.16 removes a parameter group without weights from the optimizer, but not from the
    schedule.
    """

    def created(*given: Any) -> Any:
        optimizer = create(*given)
        groups = getattr(optimizer, "param_groups", None)
        if groups is not None:
            groups[:] = [group for group in groups if group["params"]]
        return optimizer

    return created


def stopping(steps: int) -> Any:
    """A callback that ends a run after a few steps, even if the bundle states a longer run."""
    from transformers import TrainerCallback

    class Stop(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
            control.should_training_stop = control.should_training_stop or state.global_step >= steps
            return control

    return Stop()


def _sharded_group(values: dict[str, Any]) -> None:
    """Make a process group on the CPU that accelerate takes for a group of GPUs. With a group of CPUs, accelerate would
    silently not use FSDP.
    """
    import torch
    from accelerate import PartialState
    from accelerate.utils import DistributedType
    from torch.distributed.fsdp import _init_utils

    # with an index, torch's function returns "cpu:0" instead of "cpu", and FSDP1 takes the two for different devices
    _init_utils._get_device_from_device_id = lambda *_, **__: torch.device("cpu")
    PartialState(cpu=True, backend="gloo")
    PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    values["accelerator_config"] = {**(values.get("accelerator_config") or {}), "use_configured_state": True}


PRECISION = "ACCELERATE_MIXED_PRECISION"
QUIET = {"FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
"""Environment variables that turn off FSDP's copying of weights between ranks, because it needs a GPU."""
MESH = {"PARALLELISM_CONFIG_DP_REPLICATE_SIZE": "2", "PARALLELISM_CONFIG_DP_SHARD_SIZE": "2"}
"""The device mesh of the four processes of a run with hsdp."""


class Heard(logging.Handler):
    """A log handler that keeps records of the level WARNING and above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name}: {record.getMessage()}")


LOGGERS = ("", "transformers", "accelerate", "trl", "deepspeed", "DeepSpeed", "peft", "datasets")
"""The libraries' loggers from which all their other loggers inherit. The empty name is the root logger."""


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Collect warnings and log records of the libraries as texts."""
    heard = Heard()
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not name or not logger.propagate:
            logger.addHandler(heard)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield heard.lines
        finally:
            for name in LOGGERS:
                logging.getLogger(name).removeHandler(heard)
            heard.lines += [f"{one.category.__name__}: {one.message}" for one in caught]


def way(job: dict[str, Any]) -> tuple[str, ...]:
    """The stages that a job runs, in order. The last of them is the stage that the job names."""
    if job["at"] == "launch":
        return ("launch",)
    ways = {"deepspeed": ("config", "deepspeed")}
    return ways.get(job["at"], tuple(one for one in STAGES[1 : STAGES.index(job["at"]) + 1] if one != "deepspeed"))


def play(job: dict[str, Any]) -> dict[str, Any]:
    """Run every stage up to the stage that the job names, and then the job's measurement. The first exception ends the
    job.
    """
    import torch

    torch.set_num_threads(1)
    if job.get("eager"):
        torch.compiler.set_stance("force_eager")
    raised: dict[str, Any] | None = None
    measured: dict[str, Any] = {}
    effects: list[str] = []
    spent: dict[str, float] = {}
    at = "prepare"
    with listening() as warned:
        try:
            run = SmallRun(job)
            if (run.own_cpu or run.sharded) and job["at"] not in ("launch", "config", "deepspeed"):
                os.environ.update(run.launched["environment"])
                if run.sharded:
                    os.environ.update(QUIET, **(MESH if job["processes"] == 4 else {}))
                if run.sharded and os.environ.get(PRECISION) == "fp16":
                    os.environ[PRECISION] = "no"  # the CPU variant has no gradient scaler, so this warning is expected
            for at in way(job):
                begun = time.monotonic()
                run.run(at)
                spent[at] = round(time.monotonic() - begun, 2)
            if run.watch is not None:
                at = "compare"
                effects = run.watch.problems()
            if job["measure"]:
                at = "measure"
                module, _, name = job["measure"].rpartition(".")
                measured = dict(getattr(importlib.import_module(f"measures.{module}"), name)(run))
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            names = [one.__name__ for one in type(error).__mro__ if one not in (object, BaseException)]
            raised = {"type": names[0], "types": names, "message": str(error), "at": at}
    return {"raised": raised, "warned": list(dict.fromkeys(warned)), "measured": look_plain(measured), "seconds": spent,
            "silent_effects": effects}  # fmt: skip


def _unpacked_for_the_cpu() -> None:
    """Keep 4-bit weights in the layout for GPUs. On some CPUs, bitsandbytes would convert them to a layout in which
    they cannot be trained.
    """
    try:
        from bitsandbytes.nn import modules
    except ImportError:
        return
    if hasattr(modules, "has_avx512bf16"):
        modules.has_avx512bf16 = lambda: False


def look_plain(value: Any) -> Any:
    """Convert the facts that were measured to values for JSON."""
    return json.loads(json.dumps(value, default=str))


def _one_cache() -> None:
    """Give all processes the same cache folder for datasets. In a real run they read the same files; here the tiny rows
    are in memory, so each process would have a cache of its own.
    """
    import tempfile

    from datasets.fingerprint import get_temporary_cache_files_directory

    tempfile.tempdir = os.getcwd()
    get_temporary_cache_files_directory()


PATIENCE = 3
"""After one process has ended, the others have this many seconds to report why they ended."""


def ranks(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job in as many processes as it requests; this process is rank 0. Return the answer of rank 0. If only
    another rank failed, the answer has the exception of that rank.
    """
    if "folders" in job:
        return {"looked": inspect_bundles.many(job["folders"])}
    world = job["processes"]
    if "load" in way(job) and (world > 1 or job["group"]):
        with contextlib.suppress(Exception):  # The stage that loads the model reports the exception.
            # This call saves the tiny model's weights. Under zero.Init, or in a second process, it would save no
            # weights.
            tiny_models.model(job["family"])
    if world == 1 and not job["group"]:
        return play(job)
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(job["port"]))  # fmt: skip
    _one_cache()
    others: list[tuple[int, int]] = []
    for rank in range(1, world):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            with os.fdopen(write, "wb") as handle:
                handle.write(json.dumps(play(job)).encode())
            sys.stderr.flush()
            os._exit(0)
        os.close(write)
        others.append((pid, read))
    mine = play(job)
    if mine["raised"] is not None:  # other processes may wait for this one forever
        until = time.monotonic() + PATIENCE
        for pid, read in others:
            if not select.select([read], [], [], max(0.0, until - time.monotonic()))[0]:
                os.kill(pid, signal.SIGKILL)
    for pid, read in others:
        with os.fdopen(read, "rb") as handle:
            text = handle.read()
        os.waitpid(pid, 0)
        theirs = json.loads(text) if text else None
        closed = mine["raised"] is not None and "Connection closed by peer" in mine["raised"]["message"]
        if theirs and theirs["raised"] and (closed or not mine["raised"]):
            mine["raised"] = theirs["raised"]
        elif closed and not theirs:
            mine["raised"]["message"] += " (the other process died without a word)"
        if theirs:
            mine.setdefault("others", []).append(theirs["measured"])
            mine["silent_effects"] = list(dict.fromkeys([*mine["silent_effects"], *theirs["silent_effects"]]))
    return mine
