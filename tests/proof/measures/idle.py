"""Functions with which proofs measure settings that may have no effect: they return what arrives at the library that
should use the setting.
"""

from __future__ import annotations

import os
from typing import Any

import inspect_bundles


def zero(run: Any) -> dict[str, Any]:
    """Sizes of gathers and sub-groups, and the offload device, as DeepSpeed reads them from deepspeed.json. All are
    None if the bundle has no deepspeed.json.
    """
    from deepspeed.runtime.config import DeepSpeedConfig

    if not run.plan["arguments"].get("deepspeed"):
        return {"file": False, "allgather": None, "sub_group": None, "offload": None}
    stated = os.path.join(run.folder, "deepspeed.json")
    with open(stated, encoding="utf-8") as handle:
        text = inspect_bundles.json.loads(handle.read())
    text.update(train_batch_size=text["train_micro_batch_size_per_gpu"] * text["gradient_accumulation_steps"])
    config = DeepSpeedConfig(text).zero_config
    offload = config.offload_optimizer
    return {
        "file": True, "allgather": config.allgather_bucket_size, "sub_group": config.sub_group_size,
        "offload": None if offload is None else str(getattr(offload.device, "value", offload.device)),
    }  # fmt: skip


def worker(run: Any) -> dict[str, Any]:
    """Three booleans: whether the run should use FSDP, whether a process does so if a launcher with accelerate.yaml
    starts it, and whether a process does so without a launcher.
    """
    variables = run.launched["environment"]
    return {
        "wanted": run.plan["run"]["distributed_type"] == "FSDP",
        "launched": variables.get("ACCELERATE_USE_FSDP") == "true",
        "bare": os.environ.get("ACCELERATE_USE_FSDP") == "true",
    }


def version(run: Any) -> dict[str, Any]:
    """The FSDP version in accelerate.yaml, and whether accelerate's FSDP plugin has an argument for it."""
    import yaml
    from accelerate.utils import FullyShardedDataParallelPlugin

    with open(os.path.join(run.folder, "accelerate.yaml"), encoding="utf-8") as handle:
        requested = yaml.safe_load(handle).get("fsdp_config", {}).get("fsdp_version", 1)
    return {"asked": requested, "known": hasattr(FullyShardedDataParallelPlugin, "fsdp_version")}


def cycles(run: Any) -> dict[str, Any]:
    """The number of cycles in the schedule that the trainer's arguments state."""
    return {"cycles": (run.args.lr_scheduler_kwargs or {}).get("num_cycles")}


def mixture(run: Any) -> dict[str, Any]:
    """Make one dataset for each source, with rows of the source's shape, and join the datasets as a run does. Raises
    any exception of the trainer.
    """
    import datasets
    import tiny_models

    parts = [tiny_models.rows(one["shape"]) for one in run.plan["data"]["sources"]]
    run.__dict__["rows"] = datasets.concatenate_datasets(parts).shuffle(seed=1)
    return {"rows": len(run.trainer.train_dataset)}
