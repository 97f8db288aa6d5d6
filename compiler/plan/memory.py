"""The memory of one GPU by component and phase, in bytes: closed forms, each with its source.

The prediction is allocated memory, as `torch.cuda.max_memory_allocated` counts it. In public runs, the allocator
reserved 1.25 to 1.5 times as much as it allocated. This factor does not follow from the configuration, so the verdict
leaves a margin for it.

`states.py` counts the bytes that do not depend on the batch. Saved activations: coefficients.json of each stack; its
numbers were counted on real models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from xpc.compiler.plan import LOW
from xpc.compiler.plan.adapters import component, in_backward, in_forward, of_layer, of_token, recomputed_too
from xpc.compiler.plan.coefficients import row, saved
from xpc.compiler.plan.heads import logits
from xpc.compiler.plan.load import Load, UnknownMemory
from xpc.compiler.plan.states import States, gathered_weight, states
from xpc.compiler.registry.types import IMAGE_FAMILIES, layer_kinds
from xpc.grammar.record import evolve, record

OF_BATCH = ("activations", "recomputation", "backward temporaries", "logits and loss", "autocast copies")
"""Components that grow with the micro-batch."""
HELD_INPUTS = "gradients of layer inputs"
"""The name of a component: gradients of layers' inputs, if FSDP1 keeps them. Published runs with adapters needed this
memory. Newer versions of transformers recompute inside the FSDP unit, and did not need this memory in tests on the CPU.
No run on GPUs has confirmed these tests. So the plan counts the component, but refuses no run because of it.
"""
STATES = ("weights", "gradients", "optimizer", "master", "other models")


@record
class Memory:
    """The bytes of every component in every phase of a step. If `at_most` is true, the bytes of components that grow
    with the batch are only upper bounds.
    """

    phases: Mapping[str, Mapping[str, float]]
    at_most: bool = False

    @property
    def phase(self) -> str:
        """The name of the phase with the highest peak."""
        return max(self.phases, key=lambda name: sum(self.phases[name].values()))

    @property
    def peak(self) -> float:
        """The total bytes of the phase with the highest total."""
        return sum(self.components.values())

    @property
    def low(self) -> float:
        """A lower bound of the peak, in bytes. It is at least the bytes of the model states, which are counted and not
        estimated. If `at_most` is true, the bound includes only the components that do not depend on the batch.
        """
        doubtful = (*OF_BATCH, HELD_INPUTS) if self.at_most else (HELD_INPUTS,)
        most = self._largest(lambda name: name not in doubtful)
        return max(most * LOW, self._largest(lambda name: name in STATES))

    def _largest(self, counts: Callable[[str], bool]) -> float:
        return max(sum(parts[name] for name in parts if counts(name)) for parts in self.phases.values())

    @property
    def components(self) -> Mapping[str, float]:
        """The components of the phase with the highest peak."""
        return self.phases[self.phase]


def memory(load: Load) -> Memory:
    """The memory of one process. Raises UnknownMemory."""
    average = most = 0.0
    for layers, facts in layer_kinds(load.facts):
        plain = _layer(evolve(load, facts=facts), load.attention)
        average += plain * layers / load.facts.layers
        most = max(most, plain)
    if load.attention == "sdpa" and _slides(load):
        # For a layer with a sliding window, torch's kernel gets a mask. The layer then keeps as many activations as
        # with padded rows.
        sliding = _layer(load, "mask")
        share = load.facts.window_layers / load.facts.layers
        average, most = average + share * (sliding - average), max(average, sliding)
    more = of_token(load)
    phases = _phases(load, states(load), load.tokens * (average + more), load.tokens * (most + more))
    return Memory(phases, load.at_most)


def _layer(load: Load, attention: str) -> float:
    """The bytes that a layer saves per token with this kind of attention. Raises UnknownMemory."""
    trained, precision = load.mode.split("/")
    # kinds of attention other than sdpa and eager were measured only with full training
    precision = "amp" if precision in ("amp32", "wide", "norms") else precision
    found = _row(load, load.mode, attention)
    if found is not None:
        return saved(found, load.facts, load.length, load.rank)
    if attention == "flash" and _row(load, f"full/{precision}", attention) is None:
        # flash attention was not measured for this family; it keeps as many activations as torch's fused kernel without
        # a mask
        return _layer(load, "sdpa")
    # With adapters, only one kind of attention (`measured`) was measured. For another kind, take the bytes of
    # `measured`, and add the difference between the two kinds in full training, where both were measured.
    for measured in ("sdpa", "eager"):
        tuned, before = _row(load, load.mode, measured), _row(load, f"full/{precision}", measured)
        after = _row(load, f"full/{precision}", attention)
        if trained != "full" and tuned is not None and before is not None and after is not None:
            moved = saved(after, load.facts, load.length) - saved(before, load.facts, load.length)
            return saved(tuned, load.facts, load.length, load.rank) + moved
    if load.family in IMAGE_FAMILIES:
        raise UnknownMemory("the memory of a model that reads images also depends on the sizes of the images")
    requested = f"{load.mode}/{attention} with {load.stack}"
    raise UnknownMemory(f"no coefficients of `{load.family}` for {requested}: `make coefficients` measures them")


def _row(load: Load, mode: str, attention: str) -> Mapping[str, float] | None:
    found = row(load.family, f"{mode}/{attention}", load.stack)
    # There is no measurement of activations for models in which only the norms are float32. As an upper bound, use the
    # measurement in which all weights except those in 4 bits are float32.
    if found is None and mode.endswith("/norms"):
        found = row(load.family, f"{mode.removesuffix('norms')}wide/{attention}", load.stack)
    return found


def _slides(load: Load) -> bool:
    """Whether some layers have a sliding window that is shorter than rows (transformers 5.23, masking_utils.py)."""
    return 0 < load.facts.window <= load.length


def _masks(load: Load) -> float:
    """Bytes of attention masks, which grow with the square of a row's length. There is one mask for each kind of layer.
    The elements of a mask are booleans; for eager attention, they are numbers.
    """
    kinds = 2 if _slides(load) and load.facts.window_layers < load.facts.layers else 1
    if load.attention == "sdpa":
        kinds = 1 if _slides(load) else 0
    if load.attention == "eager":
        return float(kinds * load.element * load.tokens * load.length)
    # For each layer, torch's kernel copies the mask in the dtype of the computation, and then frees the copy. The
    # allocator puts smaller tensors into the freed block, so the next copy needs a new block. One such block is
    # counted. This agrees with TRL's longest row of gemma-3-1b: 107,520 tokens in 79 GiB (TRL 1.15, release notes).
    blocks = load.element if kinds else 0
    return float((kinds + blocks) * load.tokens * load.length) if load.attention != "flash" else 0.0


def _casts(load: Load) -> float:
    """Bytes of the half-precision copies of fp32 weights. Autocast makes these copies, and keeps them until the end of
    the forward pass (torch 2.13).
    """
    tuned = load.adapters
    own = tuned.params * 2.0 if tuned is not None and load.amp and tuned.element == 4 else 0.0
    if load.widened and load.amp:  # in its backward pass, the head reads a half-precision copy of its fp32 weights
        return own + float(load.facts.vocab * load.facts.hidden * load.element)
    if not load.amp or load.engine != "none" or load.weight != 4:
        return own
    if tuned is not None and load.checkpointing:
        # autocast does not cache half-precision copies of frozen weights, so only the copy of one layer exists at a
        # time
        return own + load.facts.layer_params * 2.0
    return own + load.facts.params * 2.0


def _kept(load: Load) -> float:
    """The bytes per token that a recomputed layer keeps for the backward pass: only its hidden state, which is float32
    if autocast leaves the residual stream in float32.
    """
    stays = load.amp and load.weight == 4 and load.engine == "none"
    if load.norms_widened and load.amp:
        found = _row(load, "residual/norms", "sdpa") or _row(load, "residual/norms", "eager") or {"hidden": 4.0}
        return saved(found, load.facts, load.length)
    return float(load.facts.hidden * (4 if load.element == 4 or stays or load.widened else 2))


def _attended(load: Load) -> float:
    """The bytes per token that selective recomputation saves: the output of attention and, for each head, one float32
    number that attention kernels return together with the output.
    """
    facts = load.facts
    return float(facts.values * load.element + 4 * facts.heads)


def _working(load: Load, layer: float) -> float:
    """The temporary memory of one layer's backward pass: the gradients inside the MLP or, if they are larger, those of
    eager attention's scores.

    In half precision, an MLP with a gate needs twelve bytes at once for each token and each element of its inner width.
    If experts are computed one after the other, only one expert counts, with an even share of the tokens.
    """
    facts, per = load.facts, load.element / 2
    width = facts.intermediate * max(1, facts.experts_per_token) / (facts.experts if load.looped else 1)
    trains_mlp = load.adapters is None or load.adapters.sites == "all"
    inner = (4 if trains_mlp else 6) if facts.gated_mlp else 4
    width = max(width, facts.shared_width, facts.dense_width)
    mlp = load.tokens * per * float(inner * width + (2 * facts.hidden if trains_mlp else 0))
    # Eager attention has a matrix of scores. The backward passes of attention and of the MLP run one after the other,
    # so only the larger of the two memories counts. CUDA's softmax backward needs three tensors at once: the float32
    # gradient, its product with the softmax (aten/native/cuda/SoftMax.cu), and the result. In half precision, the
    # rounded softmax is freed before these three exist.
    scores = (8 if load.element == 2 else 12) * facts.heads * load.tokens * load.length
    return max(mlp, float(scores)) if load.attention == "eager" else mlp


def _tied(load: Load) -> float:
    """The temporary bytes for the gradient of a tied embedding table: two gradients and their sum. The gradient that
    stays until the optimizer's step is counted elsewhere.

    Autograd keeps the gradient that comes from the head until the gradient from the embedding exists. Autograd then
    adds the two gradients into a third tensor (torch 2.13, input_buffer.cpp). If some weights of the model are frozen,
    the table counts as frozen, too.
    """
    facts = load.facts
    if not facts.tied or load.adapters is not None or load.trained < facts.params or load.loss == "score":
        return 0.0
    # if no gradient of the embedding table is stored yet, the sum of the gradients from head and embedding is stored
    stored = not load.accumulates and load.stage < 2 and not load.layerwise
    element = load.element if load.stage >= 2 else load.weight
    return (2.0 if stored else 3.0) * facts.vocab * facts.hidden * element


def _phases(load: Load, held: States, layer: float, largest: float) -> dict[str, dict[str, float]]:
    """Return the bytes of each component in each phase of a step. `layer` is the bytes that a layer saves on average,
    and `largest` the bytes that the largest layer saves.
    """
    facts, adapted = load.facts, load.adapters is not None
    fixed = {"weights": held.weights, "optimizer": held.optimizer, "master": held.master, "other models": load.frozen}
    if load.reserved:
        fixed["vllm"] = load.reserved
    masks = {"attention masks": _masks(load)}
    training = {**fixed, "gathered weights": held.gathered, "communication": held.communication, **masks}
    # ZeRO-3 has one tensor for all gradients of a process, from start to end (stage3.py, grad_partitions_flat_buffer)
    if load.engine == "deepspeed" and load.stage == 3:
        fixed["gradients"] = held.gradients
    before = held.gradients if load.accumulates else fixed.get("gradients", 0.0)
    layers = facts.layers if load.layers is None else load.layers
    frozen_units = load.engine == "fsdp" and adapted and load.shard > 1
    # FSDP2 gathers the next layer early, so the temporary tensors of two layers are counted
    sets = 2 if frozen_units and not load.fsdp1 else 1
    if load.checkpointing:
        attention, stays = load.tokens * _attended(load) if load.selective else 0.0, recomputed_too(load)
        kept = layers * (load.tokens * (_kept(load) + stays) + attention)
        again, working = (largest - attention) * sets, _working(load, layer) * sets
    else:
        kept, again, working = layers * layer, 0.0, _working(load, layer)
    scores = logits(load)
    # adapters: the name of their component, and the bytes that do not grow with the number of tokens (of a layer, and
    # in its forward and its backward pass)
    own, each, passing, backwards = component(load), of_layer(load), in_forward(load), in_backward(load)
    computed = 2 if load.engine == "fsdp" and load.shard > 1 else 1
    kept_adapters = each * (computed if load.checkpointing else layers)
    # the backward pass begins at the head, so the head's gradient exists during every decoder layer's backward pass
    first = 0.0 if load.loss == "score" else min(held.gradients, float(facts.vocab * facts.hidden * load.element))
    first = first if load.adapters is None else float(load.adapters.head * load.adapters.element)
    out: dict[str, dict[str, float]] = {
        "load": {"weights": held.weights, "other models": load.frozen},
        "forward": {
            **training, "gradients": before, "autocast copies": _casts(load), "activations": kept,
            own: kept_adapters + max(0.0, passing - scores), "logits and loss": scores,
        },
        "backward": {
            **training, "gradients": max(before, first), "activations": kept, "recomputation": again,
            "backward temporaries": working + backwards, own: kept_adapters + passing,
        },
        "step": {**fixed, "gradients": held.gradients, "step temporaries": held.temporary},
        "save": {**fixed, "gathered weights": held.gathered},
    }  # fmt: skip
    last = {
        **training, "gradients": held.gradients, "activations": kept / max(1, layers), "recomputation": again,
        "backward temporaries": working + backwards, own: (kept_adapters if load.checkpointing else each) + passing,
    }  # fmt: skip
    if frozen_units and load.fsdp1 and load.checkpointing:
        # FSDP1 sets a hook on the inputs of a unit that has no trained weights. If the unit runs inside reentrant
        # recomputation (transformers before 4.52), this hook keeps each layer's input and its gradient until the
        # backward pass ends (torch, _runtime_utils.py, `_register_post_backward_reshard_only_hook`). When the last
        # layer has been recomputed, all these tensors exist.
        last["activations"] = kept
        last[HELD_INPUTS] = layers * load.tokens * _kept(load)
        last["gathered weights"] -= facts.layer_params * gathered_weight(load)
    fixed["gathered weights"] = held.gathered
    moments = (out["backward"], last, {**fixed, **_at_embedding(load, held)})
    out["backward"] = max(moments, key=lambda parts: sum(parts.values()))
    out |= _without_backward(load, fixed, masks, largest)
    return {name: {what: size for what, size in parts.items() if size} for name, parts in out.items()}


def _at_embedding(load: Load, held: States) -> dict[str, float]:
    """The bytes of each component at the end of the backward pass, at the embedding. All gradients of the layers exist
    at this time.
    """
    activations = float(2 * load.tokens * load.facts.hidden * load.element)
    return {"gradients": held.gradients, "gradients of tied tables": _tied(load), "activations": activations}


def _without_backward(
    load: Load, fixed: Mapping[str, float], masks: Mapping[str, float], largest: float
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the phases without a backward pass (`evaluate`, `generate`), each with the bytes of its components. `fixed`
    has the components that are the same in all phases.
    """
    facts = load.facts
    if load.evaluated:
        half = 10 if load.element == 2 else 12
        head = 0.0 if load.loss in ("trl_fused", "score") else float(load.tokens * facts.vocab * half)
        grows = {**masks, "activations": largest, "logits and loss": head}
        yield "evaluate", {**fixed, **{what: load.evaluated * size for what, size in grows.items()}}
    if load.generates or load.wakes:
        # per token, latent attention caches the latent vector and the rotated part of the keys, which all heads share
        # (transformers 5.23)
        cached = facts.latent + facts.rotated if facts.latent else 2 * facts.kv_heads * facts.head_dim
        generating = {**fixed, "key-value cache": 2.0 * facts.layers * cached * load.generates}
        if load.wakes:
            generating["vllm"] = load.wakes
        elif load.engine == "deepspeed" and load.stage == 3 and load.shard > 1:
            # TRL gathers the complete model to generate with it (`ds3_gather_for_generation`)
            generating["gathered weights"] = facts.params * min(load.weight, float(load.element))
        yield "generate", generating
