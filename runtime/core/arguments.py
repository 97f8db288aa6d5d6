"""Build the process group and then the run's `TrainingArguments`, and compare both with the bundle."""

import logging
import os
from datetime import timedelta
from pkgutil import resolve_name
from typing import Any

from ..library_internals import torch_distributed
from .errors import RunError, first_line
from .feature import Arguments, Bundle

SINGLE = {"NO": "one process", "MULTI_GPU": "plain data parallel (DDP)", "MULTI_CPU": "plain data parallel on the CPU"}

UNTRUE = (
    ("DeepSpeed", "Setting ds_accelerator to"), ("bitsandbytes.backends.cpu.ops", "Failed to load CPU gemm_4bit_"),
    ("transformers.tokenization_utils_base", "Token indices sequence length is longer"),
    *((f"transformers.{one}", "The following arguments do not match") for one in ("trainer", "trainer_utils")),
)  # fmt: skip
"""Pairs of a logger and the beginning of one of its messages. These are harmless, and not printed. DeepSpeed 0.16
prints its accelerator also in runs without DeepSpeed. bitsandbytes reports that it lacks a kernel for inference.
transformers reports rows above the tokenizer's limit; the run itself handles such rows. When a run resumes, it also
reports that the written `every=50%` differs from the number of steps to which it was converted.
"""


def prepare_environment(bundle: Bundle) -> None:
    """Set environment variables before torch is imported, such as CUDA_VISIBLE_DEVICES for a CPU run.

    A run of one process sees only one GPU, because transformers would spread the micro-batches over all visible GPUs
    (nn.DataParallel).
    """
    for feature in bundle.features:
        feature.before_imports(bundle, os.environ)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # DISABLE_SAFETENSORS_CONVERSION: otherwise, transformers 5 lets a hub service convert pickled weights, and loads
    # the converted file. TRL_EXPERIMENTAL_SILENCE: trl 0.24 and later warn that experimental modules may move.
    os.environ |= {"DISABLE_SAFETENSORS_CONVERSION": "true", "TRL_EXPERIMENTAL_SILENCE": "1"}
    for name, words in UNTRUE:
        logging.getLogger(name).addFilter(lambda one, words=words: words not in str(one.msg))  # type: ignore[misc]


def build_arguments(bundle: Bundle) -> Any:
    """Build the run's `TrainingArguments`. There is only one such object: nothing copies or replaces it later."""
    values = dict(bundle.arguments)
    if values.get("deepspeed"):
        values["deepspeed"] = bundle.inside(values["deepspeed"])
    values.setdefault("disable_tqdm", True)
    if bundle.run["world_size"] > 1:
        torch_distributed.one_timeout(timedelta(seconds=values.get("ddp_timeout", 1800)))
    for feature in bundle.features:
        feature.before_arguments(bundle, values)
    try:
        return load_class(bundle.config)(**values)
    except TypeError as error:
        raise RunError(f"{bundle.config} does not accept these arguments: {error}") from error


def load_class(dotted: str) -> Any:
    """The class with this dotted name. Raises RunError if the installed libraries have no such class."""
    try:
        return resolve_name(dotted)
    except (ImportError, AttributeError) as error:
        raise RunError(f"the installed libraries have no {dotted}: {first_line(error)}") from error


def check_state(bundle: Bundle, args: Arguments) -> None:
    """Compare accelerate's state with the bundle, because accelerate can silently fall back to DDP or to one process.

    Raises RunError.
    """
    state, run = args.distributed_state, bundle.run
    actual = str(getattr(state.distributed_type, "value", state.distributed_type))
    expected = run["distributed_type"]
    if actual == "MULTI_GPU" and expected == "FSDP" and os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        actual = "FSDP"  # under FSDP, PartialState says MULTI_GPU here; AcceleratorState says FSDP later
    if state.num_processes != run["world_size"] or args.world_size != run["world_size"]:
        raise RunError(f"accelerate sees {state.num_processes} process(es), and this bundle is for {run['world_size']}")
    if actual != expected:
        raise RunError(
            f"this bundle is for {expected}, and accelerate runs {SINGLE.get(actual, actual)} ({actual}); "
            "start the bundle with its launch.sh"
        )
