"""The messages of other libraries that are kept from the reader, each named exactly and with its reason; no others."""

from __future__ import annotations

import logging
import re
import warnings
from typing import Any

ACCUMULATION = "Gradient accumulation steps mismatch: GradientAccumulationPlugin has 1, "
"""accelerate.accelerator, once a DeepSpeed run. The Trainer leaves accumulation to DeepSpeed and tells accelerate 1, on
purpose; transformers holds the number of deepspeed.json against the arguments (HfTrainerDeepSpeedConfig)."""
CPU_KERNEL = "Failed to load CPU gemm_4bit_forward from kernels-community"
"""bitsandbytes 0.50, at its import, on any machine: a kernel of the hub for which its own stands in."""
LABELS = "No label_names provided for model class `PeftModel"
"""transformers 4.52, of every run with adapters: it would know no labels. It finds them in peft's own forward."""
PADDING = "Please note that with a fast tokenizer, using the `__call__` method is faster"
"""transformers 4.52, of the collator of trl's RewardTrainer, which pads what is tokenized already."""
SCORES = {"score.weight", "lm_head.weight"}
"""A reward model has a new weight, its score, in the place of the old head; transformers warns of both."""


def messages() -> None:
    """Leaves out log lines, whoever imports their libraries later."""
    logging.getLogger("accelerate.accelerator").addFilter(lambda record: ACCUMULATION not in record.getMessage())
    # DeepSpeed 0.16 tells of each step of its start at the level "info", on stdout; its warnings stay.
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.WARNING)
    logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(lambda record: CPU_KERNEL not in record.getMessage())
    logging.getLogger("transformers.trainer").addFilter(lambda record: LABELS not in record.getMessage())
    tokenizing = logging.getLogger("transformers.tokenization_utils_base")
    tokenizing.addFilter(lambda record: PADDING not in record.getMessage())
    logging.getLogger("transformers.modeling_utils").addFilter(lambda record: not only_scores(record.getMessage()))


def only_scores(message: str) -> bool:
    """True for transformers' report of a reward model's new weight, when it tells of no other weight.

    transformers 4.52 lists names in brackets, 5.23 in the first column of a table.
    """
    if "ForSequenceClassification" not in message:
        return False
    listed = re.search(r"newly initialized: \[(.*)\]", message)
    if listed:
        names = {one.strip(" '") for one in listed.group(1).split(",")}
    else:
        names = {one.strip() for one in re.findall(r"^([^|\n]+)\|", message, re.MULTILINE)} - {"Key"}
    return bool(names) and names <= SCORES


def deprecations() -> None:
    """Leaves out torch's warnings of DeepSpeed's own calls; the reader of a run can do nothing about them.

    Called after transformers and trl are imported, which set filters of their own.
    """
    # trl 1.16 asks the model by the older name of activation checkpointing, around each generation and reference.
    warnings.filterwarnings("ignore", category=FutureWarning, message="`is_gradient_checkpointing` is deprecated")
    # Two collectives that DeepSpeed 0.16 to 0.19 calls by their old names.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed\.c10d_logger")
    # A warning's module is that of the caller: torch's deprecations inside DeepSpeed, and no others.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"deepspeed\.")


def tied_weights(model: Any) -> None:
    """Leaves out transformers' warning that a checkpoint lacks weights which are one with a weight that it has."""
    places: dict[int, list[str]] = {}
    for name, weight in model.state_dict().items():
        if weight.numel():  # a share of ZeRO-3 has none
            places.setdefault(weight.data_ptr(), []).append(name)
    tied = {name for names in places.values() if len(names) > 1 for name in names}

    def only_tied(message: str) -> bool:
        listed = re.search(r"missing keys in the checkpoint model loaded: \[(.*)\]", message)
        return listed is not None and {one.strip(" '") for one in listed[1].split(",")} <= tied

    logging.getLogger("transformers.trainer").addFilter(lambda record: not only_tied(record.getMessage()))
