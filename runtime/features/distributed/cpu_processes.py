"""The process group of a run on CPUs. It is created here, before the libraries would create another one."""

import os
from collections.abc import MutableMapping
from datetime import timedelta
from typing import Any

from ...core.feature import Bundle, Feature


class CpuProcesses(Feature):
    """Hooks for a run on CPUs."""

    def before_imports(self, bundle: Bundle, environ: MutableMapping[str, str]) -> None:
        """Hide the GPUs of the machine."""
        environ.update(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu")

    def before_arguments(self, bundle: Bundle, values: dict[str, Any]) -> None:
        """Create the process group of several processes, or of one process with DeepSpeed. TrainingArguments then uses
        this group (``use_configured_state``).

        Without this group, transformers would pass ``ddp_timeout`` on only for GPUs. accelerate 1.15 picks no backend
        for DeepSpeed on a CPU: each of two ranks would run alone, and one rank would compile DeepSpeed's shared-memory
        operator for minutes (TrainingArguments._setup_devices, PartialState; confirmed by running it).
        """
        if bundle.run["world_size"] > 1 or values.get("deepspeed"):
            make_group(bundle, values)
            values["accelerator_config"] = {**(values.get("accelerator_config") or {}), "use_configured_state": True}


def make_group(bundle: Bundle, values: dict[str, Any]) -> None:
    """Create a gloo group on the CPU."""
    import torch
    from accelerate import PartialState

    zero = bundle.run["distributed_type"] == "DEEPSPEED"
    if zero:
        # PartialState reads only this variable; accelerate's launcher sets it, torchrun does not
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    timeout = timedelta(seconds=values.get("ddp_timeout", 1800))
    group = PartialState(cpu=not zero, backend="gloo", timeout=timeout)
    if group.device.type == "cpu":
        # accelerate 1.4 names the device "cpu:0", and torch cannot load an optimizer onto it.
        group.device = torch.device("cpu")
