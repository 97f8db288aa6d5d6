"""A quick estimate of the memory of one process, by which a micro-batch is chosen if the spec states none.

The micro-batch is the largest divisor of gbs / world size with which weights, gradients, optimizer states, saved
activations and logits together need at most 80 % of the GPU's memory. If the model's family was measured, `choice.py`
uses the plan's estimate instead of this one. The bytes are computed by closed formulas. The formulas for model states
follow Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054, section 3). The formulas for activations count the tensors that
autograd saves for a Llama block.
"""

from __future__ import annotations

from xpc.compiler.plan import BUDGET, GIB
from xpc.compiler.plan.divisors import largest
from xpc.compiler.registry.linear_layers import linear_layers, lora_parameters
from xpc.compiler.registry.types import Gpu, ModelFacts
from xpc.grammar.record import record

SMALLEST = 1
"""The micro-batch for a model whose architecture is unknown."""
CPU_GIB, CPU_ROWS = 8, 8
"""Two limits of a run on the CPU: the memory in GiB that all its processes together may use, and the largest
micro-batch. A larger micro-batch would hardly be faster, because all its rows are padded to the longest row.
"""


@record
class MemoryInputs:
    """The quantities that decide the memory of one process.

    `stage` says what is sharded: 0 nothing, 1 optimizer states, 2 also gradients, 3 also weights. `rank` is the rank of
    adapters on every linear layer, or 0 if all weights are trained. `modules` is the number of parameters in modules
    that are trained in full, in addition to the adapters. `weight` is the size of one frozen weight in bytes.
    `references` counts frozen copies of the model. `teacher` is the bytes of another frozen model. `sequences` is the
    number of sequences in one row (two for a preference pair).
    """

    facts: ModelFacts | None
    gpu: Gpu | None
    half: bool
    stage: int
    world: int
    seq: int
    checkpointing: bool
    fused_loss: bool
    offloaded: bool
    rank: int = 0
    modules: int = 0
    weight: float = 4.0
    references: int = 0
    teacher: float = 0.0
    sequences: int = 1


@record
class Micro:
    """A chosen micro-batch, and the calculation that led to it."""

    value: int
    why: str


def states(inputs: MemoryInputs, params: int) -> float:
    """Bytes of weights, gradients and Adam states on one process, sharded by `stage`.

    A trained parameter needs 16 bytes for its weight, its gradient and two moments of Adam, all in fp32. In half
    precision, it also needs 2 bytes for a copy of the weight. A frozen parameter has `inputs.weight` bytes.
    """
    shards = {stage: max(1, inputs.world) if inputs.stage >= stage else 1 for stage in (1, 2, 3)}
    frozen, teacher = params * inputs.weight / shards[3], inputs.teacher / shards[3]
    if inputs.rank and inputs.facts is not None:
        casts = params * 2.0 / shards[3] if inputs.half and inputs.weight == 4 else 0.0
        params = lora_parameters(inputs.facts, inputs.rank, linear_layers(inputs.facts)) + inputs.modules
        moments = 0.0 if inputs.offloaded else params * 8.0 / shards[1]
        return teacher + frozen + casts + params * 10.0 + moments
    reference = frozen * inputs.references + teacher
    weights, gradients = params * 4.0 / shards[3], params * 4.0 / shards[2]
    moments = 0.0 if inputs.offloaded else params * 8.0 / shards[1]
    casts = params * 2.0 / shards[3] if inputs.half else 0.0
    return weights + gradients + moments + casts + reference


def activations(inputs: MemoryInputs, facts: ModelFacts) -> float:
    """Bytes per sequence: the saved activations of every layer, and the logits of every token."""
    # latent attention expands its keys and values for each head, so the sizes of all heads are added
    k = facts.kv_heads * facts.head_dim
    wide = 30 if inputs.half else 32
    layer = wide * facts.hidden + (8 if inputs.half else 16) * facts.intermediate + 8 * k + 4 * facts.heads + 8
    if inputs.checkpointing:
        kept = facts.layers * facts.hidden * 4 + layer + 12 * facts.intermediate + 2 * facts.hidden
    else:
        kept = facts.layers * layer
    logits = 4 * facts.hidden if inputs.fused_loss else 16 * facts.vocab
    return inputs.sequences * inputs.seq * float(kept + logits)


def loss_head(inputs: MemoryInputs, facts: ModelFacts) -> float:
    """The bytes of a fused loss head that do not depend on the batch size: the gradient of the head's weight, and the
    logits of one chunk of tokens.
    """
    if not inputs.fused_loss:
        return 0.0
    element = 2 if inputs.half else 4
    return float((4 + element) * facts.vocab * facts.hidden + 4096 * 32768 * element)


def largest_micro(inputs: MemoryInputs, share: int) -> Micro:
    """The largest micro-batch that divides `share` (gbs / world size), and whose estimated memory fits in the GPU."""
    facts, gpu = inputs.facts, inputs.gpu
    if facts is None:
        return Micro(SMALLEST, "the smallest, because the architecture is not known")
    room = CPU_GIB / max(1, inputs.world) if gpu is None else BUDGET * gpu.memory_gib
    limit = f"the {room:g} GiB of each CPU process" if gpu is None else f"{BUDGET:.0%} of {gpu.memory_gib:g} GiB"
    fixed = states(inputs, facts.params) + loss_head(inputs, facts)
    one = activations(inputs, facts)
    if one > room * GIB - fixed:
        return Micro(SMALLEST, f"the smallest: weights, gradients, optimizer and one sequence exceed {limit}")
    most = share if gpu is not None else min(share, CPU_ROWS)
    best = largest(int(min(most, (room * GIB - fixed) // one)), share)
    used = (fixed + best * one) / GIB
    upto = "" if most == share else f" up to {most}"
    return Micro(best, f"the largest divisor of {share}{upto} that fits: {used:.1f} GiB, within {limit}")
