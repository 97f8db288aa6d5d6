"""Import the sizes of axolotl's groups of processes: `dp_shard_size`, `dp_replicate_size`, `context_parallel_size`,
`tensor_parallel_size` and `expert_parallel_size`. The number of processes is a multiple of their product. With
`dp_shard_size: 8`, 16 processes train two replicas of the model, each on 8 processes.

Source: axolotl 0.19.0, utils/distributed.py (`_get_parallel_config_kwargs`).
"""

from __future__ import annotations

import math

from xpc.compiler.importing.accelerate.config import NODE
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Machines, Overrides
from xpc.compiler.importing.text.entries import Entries, Entry, integer

SIZES = ("dp_replicate_size", "dp_shard_size", "context_parallel_size")


def mesh(draft: Draft, named: Entries, overrides: Overrides, found: Machines, sharded: bool) -> None:
    """Set the number of processes, hybrid sharding and context parallelism. `sharded` says whether FSDP is used."""
    sizes = {key: named[key] for key in SIZES if key in named and (integer(named[key]) or 0) > 1}
    replicate, shard, context = map(sizes.get, SIZES)
    if context is not None:
        draft.put("strategy.context_parallel", integer(context), context)
    if shard is not None and not sharded:
        draft.error(shard, "axolotl refuses it without `fsdp_config`", "write `fsdp_config` or remove this key")
    elif shard is not None or replicate is not None:
        world = _processes(sizes, overrides, found)
        product = math.prod(integer(one) or 1 for one in sizes.values())
        exact = replicate is not None and (shard is not None or not sharded)
        if world % product or (exact and world != product):
            keys = " x ".join(f"`{key}`" for key in sizes)
            what = "not" if exact else "not a multiple of"
            draft.error(shard or replicate, f"the run has {world} processes, which is {what} {product} ({keys})",
                        "`--hardware` and `--nodes` name the machines of the run")  # fmt: skip
        else:
            if sharded:  # without FSDP, replicas are those of DDP
                _hybrid(draft, replicate, shard, world, product)
            for one in (shard, replicate):
                draft.mark(one, "mapped", "hardware, nodes")
    for key in SIZES:
        if key in named and not draft.handled(named[key]):
            draft.note(named[key], "the group has one process, or all processes that the other groups leave")
    for key in ("tensor_parallel_size", "expert_parallel_size"):
        one = named.get(key)
        if one is not None and (integer(one) or 1) == 1:
            draft.note(one, "nothing is split")
        elif one is not None:
            draft.error(one, f"xpc has no {key.partition('_')[0]} parallelism")


def _hybrid(draft: Draft, replicate: Entry | None, shard: Entry | None, world: int, product: int) -> None:
    """Set hybrid sharding if the model has several replicas."""
    replicas = world // product if replicate is None else integer(replicate) or 1
    if replicas > 1:
        draft.put("strategy", "hsdp", replicate or shard)
        draft.put("strategy.shard", world // replicas, shard or replicate)


def _processes(sizes: dict[str, Entry], overrides: Overrides, found: Machines) -> int:
    """The number of processes, from the command line or from the file. If neither states it, return the smallest number
    that axolotl accepts, and store it in `found`.
    """
    product = math.prod(integer(one) or 1 for one in sizes.values())
    count, x, _ = (overrides.hardware or "").partition(" x ")
    each = int(count) if x else 1 if overrides.hardware else None
    if overrides.nodes is not None and each is not None:
        return overrides.nodes * each
    if found.total is None:
        usual = each or NODE
        found.total = product if each is None or product > each else each
        found.nodes = overrides.nodes or (found.total // usual if found.total % usual == 0 else None) or 1
        found.entries += sizes.values()
    return found.total
