"""Compare the arguments of a bundle with those that TRL's own parser reads from the same file, value by value."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from typing import Any

import oracle_support
from import_support import Imported
from interpreters import interpreter

MACHINE = ("accelerator_config", "dataloader_pin_memory", "use_cpu", "output_dir", "run_name")
"""Arguments that depend on the machine, or name the run."""
UNUSED = {
    "logging_nan_inf_filter": "a bundle reports a loss that is not a number",
    "ddp_find_unused_parameters": "the Trainer turns it off where weights are recomputed",
}
"""Maps arguments to the reason why they do not change what these files train."""
DEPENDENT = {
    "eval_steps": ("eval_strategy", "steps"),
    "save_steps": ("save_strategy", "steps"),
    "logging_steps": ("logging_strategy", "steps"),
    "per_device_eval_batch_size": ("eval_strategy", "steps", "epoch"),
    "eval_packing": ("packing", True),
    "packing_strategy": ("packing", True),
    "gradient_checkpointing_kwargs": ("gradient_checkpointing", True),
    "activation_checkpointing_kwargs": ("activation_checkpointing", True),
    "ref_model_": ("sync_ref_model", True),
    "hub_": ("push_to_hub", True),
    "vllm_": ("use_vllm", True),
}
"""Maps the beginning of arguments to another argument and its values with which these arguments are read."""
UNSET = {
    "tf32": False,
    "eval_packing": False,
    "completion_only_loss": False,
    "gradient_checkpointing_kwargs": {"use_reentrant": True},
    "activation_checkpointing_kwargs": {"use_reentrant": False},  # transformers 5: modeling_utils.py
}
"""Maps arguments whose default is None to the value that TRL uses instead of None."""
SPELLED: dict[str, dict[str, Any]] = {
    "include_num_input_tokens_seen": {"no": False, "all": True},
    "lr_scheduler_kwargs": {"{'num_cycles': 1}": None, "{'lr_end': 1e-07, 'power': 1.0}": None},
    "optim": {"adamw_8bit": "adamw_bnb_8bit"},
}
"""Maps an argument to a mapping of values: as another TRL version writes them, to the current way of writing them."""
KNOWN = {(method, "remove_unused_columns") for method in ("kto", "orpo", "cpo")}
"""Pairs of a method and an argument: TRL's trainer of the method itself turns the argument off."""
ONE_PROCESS = {"0.22": {"average_tokens_across_devices"}}
"""Maps a TRL version to arguments. In a run of one process, such as the recorded one, transformers turns them off."""


def parsed(stack: str, requested: list[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    """Map each file to the arguments that a stack's TRL reads from it. `requested` has pairs of a file and the method
    that the file trains.
    """
    program = os.path.join(oracle_support.FOLDER, "ask_trl.py")
    words = [f"{method}={path}" for path, method in requested]
    done = subprocess.run([interpreter(stack), program, *words], capture_output=True, text=True, check=True)
    lines = [json.loads(one) for one in done.stdout.splitlines() if one.startswith("{")]
    return {one["file"]: one for one in lines}


def plain(key: str, value: Any) -> Any:
    """The value of the argument `key` as the newest TRL spells it. None becomes the value that TRL uses instead of
    None.
    """
    value = SPELLED.get(key, {}).get(str(value), value)
    value = value[0] if key == "loss_type" and isinstance(value, list) and len(value) == 1 else value
    return UNSET.get(key) if value in (None, {}) else value


FLAT = ("constant", "reduce_lr_on_plateau", "greedy")
"""Schedules for which transformers ignores the warm-up."""


def effective(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments without those that have no effect because of others: epochs, if the number of steps decides."""
    out = {key: plain(key, value) for key, value in arguments.items()}
    for start, (other, *values) in DEPENDENT.items():
        if out.get(other) not in values:
            out = {key: value for key, value in out.items() if not key.startswith(start)}
    if out["max_steps"] > 0:
        del out["num_train_epochs"]
    if out.get("padding_free") and not out.get("packing"):
        out.pop("max_length", None)  # TRL 1 refuses the argument, and older versions ignore it
    warm = {key: out.get(key) for key in ("warmup_steps", "warmup_ratio")}
    if out["lr_scheduler_type"] == "constant_with_warmup" and not any(warm.values()):
        out["lr_scheduler_type"] = "constant"
    if out["lr_scheduler_type"] in FLAT:
        out.update(dict.fromkeys(warm, 0))
    return out


def differing(
    theirs: dict[str, Any], found: Imported, method: str, ignored: Iterable[str] = ()
) -> dict[str, tuple[Any, Any]]:
    """The arguments whose values differ, each with TRL's value and the bundle's value. Arguments that do not change
    the run are left out.
    """
    unread = {*MACHINE, *UNUSED, *ignored}
    output = effective(theirs)
    return {
        key: (output[key], ours)
        for key, ours in effective(found.arguments).items()
        if key in output and key not in unread and (method, key) not in KNOWN and output[key] != ours
    }
