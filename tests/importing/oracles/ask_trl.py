"""Print the trainer's arguments that TRL's own parser reads from TRL's YAML files, together with the defaults of all
other arguments. Runs on a CPU.

python ask_trl.py METHOD=FILE ...

Run it with the interpreter of a stack. It prints a line of JSON per file. Keys about the script, the model and the data
are left out: their classes are not in TRL, but in the scripts of Open-R1 and of the alignment handbook.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from enum import Enum
from importlib import import_module
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", WANDB_MODE="disabled")


def plain(value: Any) -> Any:
    """Convert a value to JSON."""
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def ask(method: str, path: str, *words: str) -> dict[str, Any]:
    """The arguments that TRL's parser reads from a file and from additional words of the command line."""
    import transformers.training_args as training_args
    import trl
    import yaml

    training_args.is_torch_bf16_gpu_available = training_args.is_torch_tf32_available = lambda: True
    name = "RewardConfig" if method == "reward" else f"{method.upper()}Config"
    kind = getattr(trl if hasattr(trl, name) else import_module(f"trl.experimental.{method}"), name)
    with open(path, encoding="utf-8") as handle:
        table = yaml.safe_load(handle)
    names = {one.name for one in dataclasses.fields(kind)} - {"deepspeed"}
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.yaml")
        with open(config, "w", encoding="utf-8") as handle:
            yaml.safe_dump({**{key: one for key, one in table.items() if key in names}, "use_cpu": True}, handle)
        sys.argv = [sys.argv[0], "--config", config, *words]
        (made,) = trl.TrlParser((kind,)).parse_args_and_config()
    return {one.name: plain(getattr(made, one.name)) for one in dataclasses.fields(made)}


def main() -> None:
    """Print the arguments of every file, or why the parser refuses it."""
    for one in list(sys.argv[1:]):
        method, _, path = one.partition("=")
        try:
            found: dict[str, Any] = {"arguments": ask(method, path)}
        except (Exception, SystemExit) as error:
            found = {"refused": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({"file": path, **found}))


if __name__ == "__main__":
    main()
