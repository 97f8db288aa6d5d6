"""Compute how many bytes the states of an optimizer take in memory and in a checkpoint.

AdamW keeps two numbers for each trained parameter. GaLore projects each gradient to a low rank. It keeps its projection
matrices, and two numbers for each element of the projected gradients. At rank 128, GaLore's states for a matrix of
2,048 x 11,008 take 28 MB, and AdamW's take 180 MB. Sources: the states of bitsandbytes 0.50, galore-torch 1.0,
apollo-torch 1.0.3 and torchao 0.18, and DeepSpeed's shards. tests/proof/test_checkpoint_sizes.py compares the result
with real checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.optimizers import LOW_RANK, MOMENTS, PACKAGES, UNSAVED
from xpc.compiler.registry.linear_layers import ATTENTION, HEADS, TOKEN_EMBEDDINGS, Linear, linear_layers, targeted
from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.spec import Spec
from xpc.grammar.record import evolve

MASTER = 12
"""Bytes that DeepSpeed's Adam keeps for each parameter: a float32 copy and two moments (zero/stage_1_and_2.py,
stage3.py).
"""
OF_BLOCK = 1 + 4 / 256
"""Bytes of one 8-bit state for each parameter: one byte, and a share of the float32 scale that a block of 256
parameters has.
"""
OF_SMALL_BLOCK = 0.5 + 4 / 256
"""Bytes of one 4-bit state for each parameter: half a byte, and a share of the float32 scale of a block. For torchao's
4-bit optimizers, transformers uses blocks of 256 parameters.
"""

SMALL = 4096
"""The smallest number of elements of a tensor for which bitsandbytes keeps its states in 8 bits."""


def optimizer_states(spec: Spec, facts: ModelFacts, trained: int, weight: int) -> int:
    """The bytes of the optimizer's states in a checkpoint, for `trained` parameters. `weight` is the number of bytes of
    one trained weight.
    """
    if spec.owns_optimizer:
        return trained * MASTER
    if not trained or spec.text("optimizer") in UNSAVED:
        return 0
    return int(state_bytes(spec, facts, trained, weight) + (4 * trained if spec.zero_stage else 0))


def state_bytes(spec: Spec, facts: ModelFacts, trained: float, weight: float) -> float:
    """The bytes of the optimizer's states in memory, without DeepSpeed's float32 copy of the weights."""
    name = spec.text("optimizer")
    if name in LOW_RANK:
        return _projected(spec, facts, trained, weight)
    own = name in PACKAGES["bitsandbytes"]
    each: float = 4 if spec.zero_stage or own else weight
    each = OF_BLOCK if name.endswith("8bit") else OF_SMALL_BLOCK if name.endswith("4bit") else each
    moments: float = MOMENTS.get(algorithm(name), 0) + bool(spec.get("optimizer.momentum"))
    if name == "muon":
        hidden = sum(one.inputs * one.outputs * one.count for one in _matrices(spec, facts) if one.site) * facts.layers
        # one state for the matrices that Muon trains, and two for the weights that AdamW trains
        moments = 2 - min(1.0, hidden / max(1.0, trained))
    exempt = _unquantized(spec, facts) if own and name.endswith("8bit") and not spec.zero_stage else 0
    return trained * moments * each + min(exempt, trained) * moments * (4 - each)


def algorithm(name: str) -> str:
    """The name of the optimizer's algorithm, without the format of its states: `paged_adamw8bit` becomes `adamw`."""
    for start in ("paged_", "torchao_", "galore_", "apollo_"):
        name = name.removeprefix(start)
    return name.removesuffix("_layerwise").removesuffix("8bit").removesuffix("4bit")


def _unquantized(spec: Spec, facts: ModelFacts) -> int:
    """The number of parameters whose states bitsandbytes keeps in 32 bits. These are small matrices and embeddings,
    for which transformers requests 32 bits (trainer.py; `min_8bit_size` of bitsandbytes' Optimizer2State).
    """
    saved = {one.rpartition(".")[2] for one in spec.names("lora.modules_to_save")}
    embedding = facts.vocab * facts.hidden if not spec.lora or saved & {*TOKEN_EMBEDDINGS} else 0
    sizes = ((one.inputs * one.outputs, facts.layers * one.count) for one in _matrices(spec, facts) if one.site)
    return embedding + round(sum(count * size for size, count in sizes if size < SMALL))


def _projected(spec: Spec, facts: ModelFacts, trained: float, weight: float) -> float:
    """The bytes of GaLore's projection matrices and states. If the gradient is float32, a projection matrix has all
    singular vectors of the gradient. Otherwise it has only `rank` of them.
    """
    name, wanted, targets = spec.text("optimizer"), spec.integer("optimizer.rank"), spec.get("optimizer.targets")
    apollo, factored = name in PACKAGES["apollo"], algorithm(name) == "adafactor"
    each: float = OF_BLOCK if "8bit" in name else weight
    kept, projected = 0.0, 0.0
    for one in _matrices(spec, facts):
        # As in transformers, a target may be any part of a module's path. Stacked experts are not linear modules,
        # so no target includes them.
        if (one.count > 1 and spec.stack.facts.experts_stacked) or not spec.low_rank or not _named(one, targets):
            continue
        count = facts.layers * one.count if one.site else 1
        narrow, wide = sorted((one.inputs, one.outputs))
        rank = wanted if apollo else min(wanted, narrow)
        squared = not apollo and (weight == 4 or factored)
        moments = 4 * (wide + rank) if factored else 2 * each * rank * wide
        kept += count * (moments + (4 * narrow**2 if squared else weight * rank * narrow))
        projected += count * one.inputs * one.outputs
    return kept + (0 if factored else 2 * each * (trained - projected))


def _matrices(spec: Spec, facts: ModelFacts) -> Iterator[Linear]:
    """The linear modules of a layer, and the output head, whose `site` is "". For a run with adapters, the matrices of
    the adapters are returned instead.
    """
    if not spec.lora:
        yield from linear_layers(facts)
        if not facts.tied and not spec.method.scores:
            yield Linear(HEADS[0], "", facts.hidden, facts.vocab, 1)
        return
    if spec.flag("oft"):
        return
    rank = spec.integer("lora.rank")
    for one in targeted(facts, spec.get("lora.targets"), str(spec.get("lora.within") or "")):
        if not spec.low_rank:
            yield from _of_layer(spec.adapter, rank, one)
            continue
        yield Linear(f"{one.name}.lora_A", one.site, one.inputs, rank, one.count)
        yield Linear(f"{one.name}.lora_B", one.site, rank, one.outputs, one.count)


def _of_layer(kind: str, rank: int, one: Linear) -> Iterator[Linear]:
    """The sizes of the matrices that VeRA, LoHa or MiSS adds to one linear layer."""
    if kind == "vera":
        yield evolve(one, inputs=1, outputs=rank)
        yield evolve(one, inputs=1)
    elif kind == "loha":
        for _ in range(2):
            yield evolve(one, inputs=rank)
            yield evolve(one, outputs=rank)
    else:
        yield evolve(one, inputs=rank)


def _named(one: Linear, targets: object) -> bool:
    inside = "" if not one.site else "self_attn." if one.site in ATTENTION else "mlp."
    return not isinstance(targets, tuple) or any(str(target) in inside + one.name for target in targets)
