"""The messages of other libraries that are kept from the reader, each named exactly and with its reason; no others."""

import logging
import warnings

ACCUMULATION = "Gradient accumulation steps mismatch: GradientAccumulationPlugin has 1, "
"""accelerate.accelerator, once a DeepSpeed run. The Trainer leaves accumulation to DeepSpeed and tells accelerate 1, on
purpose; transformers holds the number of deepspeed.json against the arguments (HfTrainerDeepSpeedConfig)."""


def messages() -> None:
    """Leaves out log lines, whoever imports their libraries later."""
    logging.getLogger("accelerate.accelerator").addFilter(lambda record: ACCUMULATION not in record.getMessage())
    # DeepSpeed 0.16 tells of each step of its start at the level "info", on stdout; its warnings stay.
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.WARNING)


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
