"""The bytes of one process that do not depend on the batch: weights, gradients, optimizer states and buffers.

Source: Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, section 3); the buffers are those of DeepSpeed 0.19.8 and torch
2.13.
"""

from __future__ import annotations

from xpc.compiler.plan import packed_bytes
from xpc.compiler.plan.load import Load
from xpc.compiler.registry.types import ModelFacts
from xpc.grammar.record import record

SUB_GROUP = 1e9
"""The number of elements that ZeRO-3 updates at once in a process (DeepSpeed 0.19.8, zero/config.py, `sub_group_size`).
"""
BUCKET = 25 * 2**20
"""Size in bytes of one gradient bucket of DDP. DDP keeps a copy of all gradients in its buckets (torch 2.13;
transformers leaves gradient_as_bucket_view off).
"""


@record
class States:
    """Bytes of one process that do not depend on the batch, by component."""

    weights: float
    gradients: float
    optimizer: float
    master: float
    communication: float
    temporary: float
    gathered: float


def states(load: Load) -> States:
    """The bytes of weights, gradients and optimizer states on one process, after sharding."""
    facts, shard = load.facts, max(1, load.shard)
    spread = {stage: (shard if load.stage >= stage else 1) for stage in (1, 2, 3)}
    adapters = load.adapters
    trained = load.trained + (adapters.params if adapters is not None else 0.0)
    element = float(adapters.element) if adapters is not None else load.weight
    own = adapters.params * element if adapters is not None else 0.0
    weights = (facts.params * load.weight + own) / spread[3] + (0 if adapters is None else adapters.shared * element)
    whole = facts.layer_params * load.element
    gradients = trained * element / spread[2]
    if load.layerwise:
        gradients = min(gradients, facts.layer_params * element)
    optimizer = trained * load.moments / spread[1]
    master = communication = gathered = 0.0
    temporary = trained * load.temporary / spread[1]
    if load.engine == "deepspeed":
        # DeepSpeed keeps an fp32 copy of the weights, even of fp32 weights, and fp32 gradients during the optimizer's
        # step (DeepSpeed 0.19.8, single_partition_of_fp32_groups, fp32_partitioned_groups_flat)
        master = trained * 4.0 / spread[1]
        # a bucket of gradients that is filled, and another that is reduced
        bucket = load.element * float(load.bucket or facts.hidden**2)
        communication = 2 * bucket
        if load.stage < 3:
            temporary += 4.0 * trained / spread[1]
        else:
            # Stage 3 fills one bucket from start to end. Up to three reductions are unfinished at a time
            # (max_param_reduce_events), each with the bucket's gradients and a copy. In the optimizer's step, the
            # gradients of a sub-group are copied, and the copy is converted to fp32 (_prepare_fp32_grad_for_sub_group).
            communication = bucket + 3 * 2 * min(bucket, trained * load.element)
            temporary += (4.0 + load.element) * min(trained / shard, SUB_GROUP) + bucket
            gathered = min(2 * facts.layer_params + _outside(facts) / 2, 1e9 + facts.layer_params) * load.element
            gathered *= shard > 1
        if load.offload and load.stage > 1:
            # gradients move to host memory; stage 2 keeps one tensor with the size of the largest weight for that
            gradients = load.element * min(trained, float(facts.vocab * facts.hidden)) if load.stage == 2 else 0.0
    elif load.engine == "fsdp":
        # The weights of two layers are gathered at a time: those of the current and those of the next layer. Embedding
        # and head stay gathered, because FSDP does not reshard the root module after the forward pass, and their
        # gradients are reduced in full.
        layers = facts.layer_params * gathered_weight(load) * (2 if load.reshards else facts.layers)
        gathered = layers + _outside(facts) * load.element if shard > 1 and load.stage == 3 else 0.0
        # bitsandbytes keeps the scales of 4-bit weights in `quant_state`, which FSDP does not shard
        if adapters is not None and adapters.bits == 4 and spread[3] > 1:
            packed = facts.layers * facts.layer_params * (packed_bytes(4, adapters.nested) - 0.5)
            weights += packed * (1 - 1 / shard)
        if adapters is None and shard > 1:
            communication = whole
    elif load.world > 1:
        communication = trained * element + BUCKET
    if load.offload:
        optimizer = master = temporary = 0.0
    if load.offload == 2:
        weights, gathered, gradients = 0.0, gathered or 2 * whole, 0.0
    return States(weights, gradients, optimizer, master, communication, temporary, gathered)


def gathered_weight(load: Load) -> float:
    """Bytes of one weight when a layer's weights are gathered from all processes. A quantized weight is gathered as it
    is stored, any other weight in the dtype of the computation.
    """
    return float(load.element) if load.adapters is None else min(float(load.element), load.weight)


def _outside(facts: ModelFacts) -> float:
    """The number of parameters outside of the layers. If layers differ, only embeddings and head are counted."""
    if facts.uneven:
        return facts.vocab * facts.hidden * (1.0 if facts.tied else 2.0)
    return max(0.0, facts.params - facts.layers * facts.layer_params)
