"""The sharding strategies, and what each of them shards."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.language.setting import Path

SPREADS = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp1": 3, "hsdp": 3}
"""How much each strategy shards: 0 is nothing, 1 the optimizer's states, 2 also the gradients, 3 also the weights."""
FSDP = ("fsdp", "fsdp1", "hsdp")
"""The strategies that use PyTorch's FSDP."""
OLD_STRATEGIES: Mapping[str, tuple[str, Mapping[Path, object]]] = {
    "full_shard": ("fsdp", {"strategy.reshard": True}),
    "shard_grad_op": ("fsdp", {"strategy.reshard": False}),
    "no_shard": ("ddp", {}),
    "hybrid_shard": ("hsdp", {"strategy.reshard": True}),
    "hybrid_shard_zero2": ("hsdp", {"strategy.reshard": False}),
}
"""The sharding strategies of FSDP1, each with the strategy and the settings of xpc that have the same effect."""
