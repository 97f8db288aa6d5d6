"""Functions with which proofs measure sequence parallelism by DeepSpeed's Ulysses (several processes share a sequence)
in accelerate, transformers and TRL.

One process simulates the group of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import inspect_bundles


def mesh(run: Any) -> dict[str, Any]:
    """The process groups and the attention that accelerate reads for sequence parallelism. Raises any exception of
    accelerate.
    """
    found = inspect_bundles.parallelism(run)
    return {"ranks": found.sp_size, "attention": found.sp_handler.sp_attn_implementation}


@contextmanager
def _group(size: int) -> Iterator[Any]:
    """Yield DeepSpeed's module. It is changed so that this process seems to belong to a group of `size` processes."""
    import deepspeed.runtime.sequence_parallel.parallel_state_sp as mpu
    from deepspeed.runtime.sequence_parallel import ulysses_sp

    def gathered(out: list[Any], one: Any, group: Any = None) -> None:
        for at in range(len(out)):
            out[at] = one

    with (
        patch.multiple(
            ulysses_sp.dist, get_world_size=lambda *_: size, get_rank=lambda *_: 0, all_gather=gathered,
            all_gather_object=gathered,
        ),
        patch.multiple(ulysses_sp, register_all_to_all_group=lambda *_: None, _dim_zero_all_to_all=lambda _, one: one),
        patch.multiple(mpu, initialize_sequence_parallel=lambda **_: None, get_sequence_parallel_group=lambda: None),
    ):  # fmt: skip
        yield ulysses_sp


def heads(run: Any) -> dict[str, Any]:
    """Divide the heads of the spec's model as DeepSpeed does. Raises any exception of DeepSpeed."""
    from xpc.compiler.registry import find_model

    facts = find_model(run.plan["model"]["id"])
    assert facts is not None
    with _group(inspect_bundles.parallelism(run).sp_size) as found:
        made = found.UlyssesSPAttentionHF(
            None, 1, facts.heads, facts.head_dim, facts.kv_heads, facts.layers, None, True
        )
    return {"heads": made.local_q_head_count}


def chunks(run: Any) -> dict[str, Any]:
    """Split the first batch by DeepSpeed's loader; return the parts. Raises any exception of DeepSpeed."""
    import torch

    size, trainer = inspect_bundles.parallelism(run).sp_size, run.trainer
    trainer.data_collator.return_position_ids = True
    batch = next(iter(trainer.get_train_dataloader()))
    batch = {name: batch[name] for name in ("input_ids", "labels", "position_ids")}
    with _group(size) as found:
        loader = found.UlyssesSPDataLoaderAdapter([batch], 0, None, size, torch.device("cpu"))
        return {"length": next(loader)["input_ids"].shape[1]}


def attention(run: Any) -> dict[str, Any]:
    """The largest change of a logit if DeepSpeed's attention replaces the model's own attention. The model is a tiny
    one with short sliding windows.
    """
    import tiny_models
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    torch.manual_seed(0)
    config = tiny_models.config(run.family)
    if hasattr(config, "sliding_window"):
        config.sliding_window = 4
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval().float()
    tokens, locations = torch.randint(3, 120, (1, 16)), torch.arange(16)[None]
    plain = ALL_ATTENTION_FUNCTIONS["sdpa"]
    with _group(1) as found, torch.no_grad():
        whole = model(input_ids=tokens, position_ids=locations, use_cache=False).logits
        try:
            found.UlyssesSPAttentionHF.register_with_transformers(model, "sdpa", 2, 1)
            other = model(input_ids=tokens, position_ids=locations, use_cache=False).logits
        finally:
            ALL_ATTENTION_FUNCTIONS["sdpa"] = plain
    return {"changed": float((whole - other).abs().max() / whole.std())}


def trainer(run: Any) -> dict[str, Any]:
    """Build the trainer with the environment variables that make accelerate share each sequence among several
    processes. Raises any exception of the trainer.
    """
    from accelerate.parallelism_config import ParallelismConfig

    named = {name: one for name, one in run.launched["environment"].items() if "PARALLELISM_CONFIG" in name}
    with (
        inspect_bundles.environment(**named),
        patch.object(ParallelismConfig, "_validate_accelerator", lambda *_: None),
    ):
        return {"counted": run.trainer.model_accepts_loss_kwargs}
