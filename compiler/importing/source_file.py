"""The file or command line to import: its text, its keys, and the tool for which it is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xpc.compiler.importing.axolotl import keys as axolotl
from xpc.compiler.importing.llamafactory.keys import SECOND
from xpc.compiler.importing.text import table
from xpc.compiler.importing.text.entries import Entry, Unreadable
from xpc.grammar.record import record

TYPED = "--command"
"""The name that a command line has in messages, instead of a file name."""
AXOLOTL = ("base_model", "micro_batch_size", "sequence_len", "val_set_size", "num_epochs")
OTHER = {"per_device_train_batch_size", "num_train_epochs", "lr_scheduler_type", "max_seq_length"}
"""Common keys of transformers and TRL that axolotl does not know. A file with such a key and without `datasets` is not
axolotl's, even if it has `base_model` and `lora_r`.
"""
LLAMAFACTORY = ("stage", "finetuning_type", "template", "cutoff_len", "dataset_dir")
TRAINING = ("learning_rate", "num_train_epochs", "num_epochs", "max_steps", "per_device_train_batch_size", "dataset",
            "train_dataset", "datasets", "dataset_name", "dataset_mixer", "dataset_mixture", "data_path", "do_train",
            "gradient_accumulation_steps", "micro_batch_size", "train_batch_size", "output_dir", "optimizer", "optim",
            "stage", "epochs", "beta")  # fmt: skip
"""Keys of configurations of a training: a file without any of them does not configure a training."""
INFERENCE = ("infer_backend", "infer_dtype", "vllm_maxlen", "max_new_tokens", "do_sample", "top_p",
             "adapter_name_or_path", "template", "prompt", "prompts", "max_model_len")  # fmt: skip


@record
class SourceFile:
    """The file to import: its name, its text, and the folder to which the paths in it are relative."""

    name: str
    text: str
    folder: str

    def table(self) -> dict[str, Entry]:
        """The keys of the text, which is YAML or JSON. Raises Unreadable."""
        return table.read(self.text, self.name)


def kind_of(source: SourceFile, is_file: bool) -> str:
    """The name of the tool for which the file is written, such as `axolotl`, `python` or `command`. It is derived from
    the file's name and keys. Raises Unreadable for a file that does not configure a training.
    """
    if is_file and source.name.endswith((".py", ".ipynb")):
        return "python"
    if not is_file or source.name.endswith((".sh", ".bash")) or source.text.startswith("#!"):
        return "command"
    try:
        table = source.table()
    except Unreadable:
        words = ("torchrun", "accelerate launch", "deepspeed ", "python ", "trl ", "llamafactory-cli", "axolotl ")
        if any(word in source.text for word in words):
            return "command"
        raise
    keys = set(table)
    reason = _trains_nothing(keys, table)
    if reason:
        raise Unreadable(reason)
    if any("_component_" in part.mapping for one in table.values() for part in one.items):
        return "torchtune"
    if "base_model" in keys and "datasets" in keys:
        return "axolotl"
    sized = keys & {"train_batch_size", "train_micro_batch_size_per_gpu"} and not keys & {"learning_rate", "output_dir"}
    if "zero_optimization" in keys or sized:
        return "deepspeed"
    if "distributed_type" in keys or "compute_environment" in keys:
        return "accelerate"
    if ("base_model" in keys or len(keys & set(AXOLOTL)) > 1) and _known(keys, axolotl.names()) and not keys & OTHER:
        return "axolotl"
    newer = {"model_class", "train_dataset"} & keys and _known(keys, SECOND)
    if len(keys & set(LLAMAFACTORY)) > 1 or newer:
        return "llamafactory"
    if "dataset_dir" in keys and not keys & {"dataset_mixer", "dataset_mixture", "dataset_name", "dataset_splits"}:
        return "llamafactory"
    return "trl"


def _known(keys: set[str], names: Iterable[str]) -> bool:
    """Whether a tool knows at least half of the keys. A single key such as `base_model` proves nothing, because files
    of custom scripts also have it.
    """
    return 2 * len(keys & set(names)) >= len(keys)


def _trains_nothing(keys: set[str], table: Mapping[str, Entry]) -> str:
    """Why a file does not configure a training, such as "it is a merge configuration of mergekit"; "" if it does."""
    trains = keys & set(TRAINING)
    if "merge_method" in keys or ("slices" in keys and not trains):
        return "it is a merge configuration of mergekit, which trains nothing: merge first, and train the merged model"
    if "export_dir" in keys and not keys & {"dataset", "train_dataset", "do_train", "learning_rate"}:
        return "it exports a trained model (`llamafactory-cli export`), and trains nothing"
    off = "do_train" not in keys or table["do_train"].off
    factory = keys & {"stage", "finetuning_type", "template"}
    if factory and off and "do_predict" in keys and not table["do_predict"].off and "learning_rate" not in keys:
        return "it evaluates or predicts (`do_predict`), and trains nothing"
    if {"task", "n_shot"} <= keys:
        return "it evaluates a model (`llamafactory-cli eval`), and trains nothing"
    if keys & set(INFERENCE) and keys & {"infer_backend", "max_new_tokens", "do_sample", "prompts", "max_model_len"}:
        return "" if trains else "it is for inference, and trains nothing"
    chat = {"model_name_or_path", "template"} <= keys and not trains
    return "it is for inference (`llamafactory-cli chat`), and trains nothing" if chat else ""
