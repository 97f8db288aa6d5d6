"""ZeRO: check DeepSpeed's shards in a checkpoint, the wrapped model, and the tools that compile the optimizer."""

import logging
import os
import shutil
import sys
import warnings
from collections.abc import MutableMapping
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO

from ...core.checkpoint_integrity import RECORD
from ...core.checkpoints import archive_complete, schedule
from ...core.errors import RunError, first_line
from ...core.feature import Bundle, Feature, Trainer

ACCUMULATION = "Gradient accumulation steps mismatch: GradientAccumulationPlugin has 1, "
"""The beginning of a harmless warning of accelerate. transformers passes 1 to accelerate, because DeepSpeed accumulates
gradients itself. transformers compares the run's accumulation with deepspeed.json (HfTrainerDeepSpeedConfig).
"""


class DeepSpeed(Feature):
    """Hooks for a run with DeepSpeed's ZeRO."""

    def check_checkpoint(self, path: str, world: int) -> str | None:
        """Describe what is wrong with the shards of a checkpoint; None if nothing is wrong."""
        # If DeepSpeed makes the optimizer, the shards contain the schedule, and there is no scheduler.pt
        # (Trainer._save_optimizer_and_scheduler).
        if os.path.exists(os.path.join(path, "scheduler.pt")) and (late := schedule(path)):
            return late
        try:
            with open(os.path.join(path, "latest"), encoding="utf-8") as handle:
                shards = os.path.join(path, handle.read().strip())
            names = os.listdir(shards)
        except OSError:
            return "the DeepSpeed shards are missing"
        except ValueError:  # invalid UTF-8, or an impossible folder name
            return "latest is damaged"
        optimizer = [name for name in names if name.endswith("_optim_states.pt")]
        # a checkpoint with a record of its files is complete, even if another number of processes wrote it
        if len(optimizer) != world and not os.path.exists(os.path.join(path, RECORD)):
            return f"it has {len(optimizer)} optimizer shards, but the run has {world} processes"
        if not any(name.endswith("_model_states.pt") for name in names):
            return "the model states are missing"
        short = [name for name in names if name.endswith(".pt") and not archive_complete(os.path.join(shards, name))]
        return f"{short[0]} is cut off" if short else None

    def before_imports(self, bundle: Bundle, environ: MutableMapping[str, str]) -> None:
        """Filter a harmless warning about gradient accumulation, and the messages of DeepSpeed's start."""
        logging.getLogger("accelerate.accelerator").addFilter(lambda record: ACCUMULATION not in record.getMessage())
        # DeepSpeed 0.16 logs each step of its start to stdout at level "info"; warnings are still logged
        logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.WARNING)

    def libraries_imported(self, bundle: Bundle) -> None:
        """Filter torch's warnings that DeepSpeed calls functions by deprecated names.

        DeepSpeed 0.16 to 0.19 calls two collectives by such names; torch attributes these warnings to its module
        `c10d_logger`, so this module is filtered, too.
        """
        module = r"deepspeed\.|torch\.distributed\.c10d_logger"
        warnings.filterwarnings("ignore", category=FutureWarning, module=module)

    def before_first_step(self, bundle: Bundle, trainer: Trainer) -> None:
        """Check that the model is wrapped in ZeRO of the bundle's stage. Raises RunError."""
        stage, model = bundle.run["zero_stage"], trainer.model_wrapped
        if not hasattr(model, "zero_optimization_stage") or model.zero_optimization_stage() != stage:
            raise RunError(f"this bundle is for ZeRO stage {stage}, and the model is wrapped in {type(model).__name__}")

    def check_build_tools(self, bundle: Bundle) -> list[str]:
        """Findings about missing tools for compiling the DeepSpeed extension of this run's optimizer.

        The extension is compiled when the optimizer is created (deepspeed 0.16 and 0.19, runtime/engine.py
        `_configure_basic_optimizer`, ops/op_builder/builder.py `jit_load`).
        """
        operator = bundle.run["deepspeed_extension"]
        if operator is None or operator in _prebuilt():
            return []
        return [f"DeepSpeed compiles its {operator} when this run starts, and {one}" for one in missing(cuda=True)]


def _prebuilt() -> set[str]:
    """The compiled extensions of the installed DeepSpeed. The package on PyPI has no compiled extension."""
    from runpy import run_path

    found = find_spec("deepspeed")
    folder = os.path.dirname(found.origin) if found and found.origin else ""
    place = os.path.join(folder, "git_version_info_installed.py")
    if not os.path.isfile(place):
        return set()
    return {name for name, built in (run_path(place).get("installed_ops") or {}).items() if built}


def missing(cuda: bool) -> list[str]:
    """Findings about missing tools for torch extensions: ninja, a C++ compiler and, if ``cuda``, CUDA's toolkit."""
    found = []
    if shutil.which("ninja") is None:
        candidate = os.path.join(os.path.dirname(sys.executable), "ninja")
        where = f"put {os.path.dirname(candidate)} on PATH" if os.path.exists(candidate) else "pip install ninja"
        found.append(f"ninja is not on PATH ({where})")
    compiler = os.environ.get("CXX") or "c++"
    if shutil.which(compiler) is None:
        found.append(f"there is no C++ compiler ({compiler} is not on PATH)")
    if not cuda:
        return found
    try:
        with redirect_stdout(StringIO()):  # the import prints the list of extensions that DeepSpeed could compile
            from deepspeed.ops.op_builder.builder import assert_no_cuda_mismatch

            assert_no_cuda_mismatch("optimizer")  # refuses a CUDA compiler that does not fit torch's CUDA version
    except Exception as error:
        # DeepSpeed has two exception classes for this case, and a broken CUDA compiler may cause any other exception
        found.append(f"no CUDA toolkit fits ({first_line(error)}): set CUDA_HOME to the folder of one")
    return found
