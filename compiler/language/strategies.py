"""The sharding strategies, and what each of them shards."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.language.setting import Path

SPREADS = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp1": 3, "hsdp": 3}
"""Maps each strategy to a number that says what it shards. 0: nothing. 1: the optimizer states. 2: the optimizer states
and the gradients. 3: the optimizer states, the gradients and the weights.
"""
FSDP = ("fsdp", "fsdp1", "hsdp")
"""The strategies that use PyTorch's FSDP."""
OLD_STRATEGIES: Mapping[str, tuple[str, Mapping[Path, object]]] = {
    "full_shard": ("fsdp", {"strategy.reshard": True}),
    "shard_grad_op": ("fsdp", {"strategy.reshard": False}),
    "no_shard": ("ddp", {}),
    "hybrid_shard": ("hsdp", {"strategy.reshard": True}),
    "hybrid_shard_zero2": ("hsdp", {"strategy.reshard": False}),
}
"""Maps each sharding strategy of FSDP1 to xpc's strategy and settings with the same effect."""
