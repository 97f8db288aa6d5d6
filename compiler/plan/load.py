"""The quantities that decide the memory of one process: sizes, precision, sharding, batch, loss and adapters.

A `Load` is made from a checked spec (`from_spec.py`) or from a published measurement (tests/plan/points.py). Both use
the closed forms of `memory.py`.
"""

from __future__ import annotations

from xpc.compiler.registry.linear_layers import Linear
from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.stacks import DEFAULT
from xpc.grammar.record import record


class UnknownMemory(Exception):
    """Raised if the memory of a run cannot be predicted. The message is a sentence with the reason."""


@record
class Adapters:
    """The adapters of a model.

    `sites` is the set of modules that have an adapter. `params` is the number of parameters that all adapters of the
    model have together, and `element` the bytes of one parameter. `linear` has those linear layers of a decoder layer
    that get an adapter. `merged` counts those weights of a layer that are in stacks of experts; in each forward pass,
    peft adds the adapters to a copy of these weights. `kind` is lora, dora, oft, vera, loha or miss. `shared` is the
    number of frozen parameters that VeRA's layers share. `blocks` is the number of elements in OFT's rotations of a
    layer, if each rotation is written as a full matrix. `bits` is 4 or 8 for a quantized base, otherwise 0, and
    `nested` says whether the scales of the quantized weights are quantized, too. `head` is the number of weights of the
    output head if they are trained in full, otherwise 0.
    """

    sites: str
    rank: int
    params: float
    element: int
    linear: tuple[Linear, ...]
    dropout: float = 0.0
    merged: int = 0
    kind: str = "lora"
    blocks: float = 0
    bits: int = 0
    nested: bool = False
    shared: int = 0
    head: int = 0


@record
class Load:
    """The memory-relevant quantities of one process of a run.

    `engine` is "none" (one process or DDP), "deepspeed" or "fsdp". `stage` says what is sharded over `shard` processes:
    0 nothing, 1 optimizer states, 2 also gradients, 3 also weights. `offload` is 0, 1 (optimizer states in host memory)
    or 2 (weights as well). `element` is the bytes of a number in the dtype of the computation, and `weight` the bytes
    of a stored weight (of the base, if the base is frozen). `amp` is true if the model has float32 weights and computes
    in half precision. `moments` is the bytes of optimizer states per trained parameter. `temporary` is the bytes per
    trained parameter that are needed only during the optimizer's step. `tokens` counts the tokens of one micro-batch,
    `length` the tokens of one of its rows. `trained` counts the model's own parameters with a gradient, not those of
    adapters. `loss` is a key of `heads.HEADS`. `frozen` is the bytes of frozen models in addition to the trained one.
    `evaluated` is the number of tokens in an evaluation's micro-batch, divided by `tokens`. `layers` is the number of
    layers that a gradient passes through, or None for all. `stack` is the stack, whose libraries run the model.
    `bucket` is the number of elements in DeepSpeed's bucket of gradients, or 0 for transformers' default. vLLM takes
    `reserved` bytes all the time, and `wakes` bytes only while it generates.

    The booleans are true in these cases:

    - `selective`: recomputation keeps the outputs of attention
    - `reentrant`: recomputation is torch's older, reentrant kind
    - `widened`: embeddings, head and norms of a quantized base are float32 in half precision; `norms_widened`: only the
      norms
    - `fsdp1`: version 1 of FSDP shards the model
    - `at_most`: the memory that grows with the batch is only known as an upper bound
    - `looped`: experts are computed one by one
    - `reshards`: FSDP frees the gathered weights after the forward pass
    """

    facts: ModelFacts
    family: str
    engine: str
    stage: int
    world: int
    shard: int
    offload: int
    element: int
    weight: float
    amp: bool
    moments: float
    temporary: float
    micro: int
    length: int
    accumulates: bool
    checkpointing: bool
    attention: str
    loss: str
    trained: float
    adapters: Adapters | None = None
    frozen: float = 0.0
    evaluated: float = 0.0
    generates: int = 0
    reserved: float = 0.0
    layerwise: bool = False
    scored: int = 0
    stack: str = DEFAULT
    selective: bool = False
    layers: int | None = None
    widened: bool = False
    at_most: bool = False
    reentrant: bool = False
    looped: bool = False
    norms_widened: bool = False
    fsdp1: bool = False
    bucket: int = 0
    wakes: float = 0.0
    reshards: bool = True

    @property
    def tokens(self) -> int:
        """The number of tokens in a micro-batch."""
        return self.micro * self.length

    @property
    def through(self) -> float:
        """The share of the layers that a gradient passes through, from 0 to 1."""
        return 1.0 if self.layers is None or not self.facts.layers else self.layers / self.facts.layers

    @property
    def trained_share(self) -> float:
        """The share of the model's parameters that have a gradient, from 0 to 1. Parameters of adapters are not
        counted.
        """
        return self.trained / max(1, self.facts.params)

    @property
    def mode(self) -> str:
        """The key under which coefficients.json has the measured bytes: what is trained, and in which precision.

        Two cases were measured separately: adapters of a float32 base under autocast, and adapters of a quantized base
        with float32 embeddings or norms. FSDP computes with half-precision weights (accelerate's policy) for every
        stored dtype.
        """
        precision = "amp" if self.amp else "bf16" if self.element == 2 else "fp32"
        tuned = self.adapters
        if tuned is None:
            return f"full/{precision}"
        if self.amp and self.engine == "none":
            if self.widened:
                precision = "wide"
            elif self.norms_widened:
                precision = "norms"
            elif self.weight == 4:
                precision = "amp32"
        # With a float32 base, LoRA, DoRA and OFT were measured. For the other kinds of adapters, OFT's measurement is
        # used, because their outputs have the dtype of their inputs, as OFT's do. With any other base, LoRA's bytes are
        # used, and `adapters.py` adds the difference.
        kind = "lora"
        if precision == "amp32" and tuned.kind != "lora":
            kind = "dora" if tuned.kind == "dora" else "oft"
        return f"{kind}-{tuned.sites}/{precision}"

    @property
    def rank(self) -> int:
        """The rank of LoRA or DoRA, by which the formulas multiply the parameters per rank. 0 for any other kind of
        adapter, whose parameters are counted in another way.
        """
        return 0 if self.adapters is None or self.adapters.kind not in ("lora", "dora") else self.adapters.rank
