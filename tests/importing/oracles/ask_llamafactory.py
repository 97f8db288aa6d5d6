"""Record the arguments with which LLaMA-Factory itself would train each file, on a CPU without a network.

python ask_llamafactory.py PUBLISHED OUT.jsonl

Run it with the interpreter that has LLaMA-Factory (`make oracles` installs it). A file in the first layout goes through
`get_train_args`, a file in the newer layout (`train_dataset`) through the newer parser. Only queries about the machine
are replaced: the replacements report a GPU with bf16, and several launched processes. OUT.jsonl has a line per file
with the arguments that differ from the defaults of their classes; the first line has the defaults.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", DISABLE_VERSION_CHECK="1", WANDB_MODE="disabled")
from answers import files, plain, write

MACHINE = {
    "_n_gpu", "local_rank", "output_dir", "logging_dir", "use_cpu", "accelerator_config", "hub_token",
    "push_to_hub_token", "dataloader_num_workers", "preprocessing_num_workers", "device_map", "overwrite_output_dir",
    "ray_init_kwargs", "save_token_string", "distributed_state",
}  # fmt: skip
"""Arguments that are not recorded, because they depend on the machine or the folder."""
WANTED = ("accelerate", "llamafactory", "peft", "torch", "transformers", "trl")


def stated(made: Any, defaults: dict[str, dict[str, Any]], bare: Any) -> dict[str, Any]:
    """Those arguments whose values differ from the defaults of their class."""
    name = type(made).__name__ if type(made).__module__.find(".v1.") < 0 else "v1." + type(made).__name__
    if name not in defaults:
        defaults[name] = _read(bare(type(made)))
    return {key: one for key, one in _read(made).items() if one != defaults[name].get(key)}


def _read(made: Any) -> dict[str, Any]:
    names = {one.name for one in dataclasses.fields(made)} | set(vars(made))
    output = {key: plain(getattr(made, key, None)) for key in sorted(names - MACHINE) if not key.startswith("_")}
    return {key: value for key, value in output.items() if not (isinstance(value, str) and " object at 0x" in value)}


def _bare(kind: type) -> Any:
    given: dict[str, Any] = {}
    names = {one.name for one in dataclasses.fields(kind)}
    if "output_dir" in names:
        given["output_dir"] = tempfile.mkdtemp()
    if "use_cpu" in names:
        given["use_cpu"] = True
    if "model_name_or_path" in names:
        given["model_name_or_path"] = "x"
    return kind(**given)


def ask(table: dict[str, Any], defaults: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The arguments with which LLaMA-Factory would train a file with these keys."""
    if "train_dataset" in table or "model_class" in table:
        from llamafactory.v1.config.arg_parser import get_args

        made = get_args(table)
        return {"layout": 1, "arguments": {type(one).__name__: stated(one, defaults, _bare) for one in made[:3]}}
    from llamafactory.hparams import get_train_args

    # The recipe's DeepSpeed file does not exist here. The importer knows LLaMA-Factory's files by name, so it does not
    # need the content.
    table.pop("deepspeed", None)
    made = get_train_args({**table, "use_cpu": True, "output_dir": tempfile.mkdtemp()})
    return {"layout": 0, "arguments": {type(one).__name__: stated(one, defaults, _bare) for one in made[:4]}}


def answers() -> None:
    """Replace the functions that query the machine. The replacements report a GPU with bf16, and several running
    processes.
    """
    import transformers.training_args as training_args
    from llamafactory.hparams import parser
    from transformers import TrainingArguments
    from transformers.training_args import ParallelMode

    training_args.is_torch_bf16_gpu_available = lambda: True
    training_args.is_torch_tf32_available = lambda: True
    parser.is_torch_bf16_gpu_available = lambda: True
    TrainingArguments.parallel_mode = property(lambda self: ParallelMode.DISTRIBUTED)


def main() -> None:
    """Record LLaMA-Factory's arguments for every file, or the reason why LLaMA-Factory refuses the file."""
    from importlib.metadata import version

    published, out = sys.argv[1:3]
    answers()
    defaults: dict[str, dict[str, Any]] = {}
    lines = []
    for name, table in files(published, "llamafactory"):
        try:
            found = ask(table, defaults)
        except Exception as error:
            found = {"refused": f"{type(error).__name__}: {error}"[:400]}
        lines.append({"file": name, **found})
        print(name, found.get("refused", "asked"), flush=True)
    head = {"tool": "llamafactory", "versions": {one: version(one) for one in WANTED}, "defaults": defaults}
    write(out, head, lines)


if __name__ == "__main__":
    main()
