"""What decides the memory of one process: sizes, precision, sharding, batch, loss and adapters, as plain numbers.

A `Load` is made of a checked spec (`from_spec.py`) or of a published measurement (tests/plan/points.py), so that the
forms of `memory.py` are the same for both.
"""

from __future__ import annotations

from xpc.compiler.registry.linear_layers import ATTENTION, Linear
from xpc.compiler.registry.types import ModelFacts
from xpc.compiler.stacks import DEFAULT
from xpc.grammar.record import record

SITES = {"qv": ("q", "v", "qkv"), "qkvo": ATTENTION, "all": (*ATTENTION, "gate", "up", "gate_up", "down")}
"""Sets of linear layers that adapters stand on and that the oracle measured."""


@record
class Adapters:
    """Adapters: their sites, rank, parameters (of the whole model), bytes of one, the linear layers of a decoder layer
    that they stand on, their dropout, and how many weights of a layer peft merges with them in each forward pass
    (stacks of experts). `kind` is lora, dora or oft, `blocks` the numbers of a layer's rotations as whole matrices;
    `bits` are those of a quantized base, 0 of another.
    """

    sites: str
    rank: int
    params: float
    element: int
    linear: tuple[Linear, ...]
    dropout: float = 0.0
    merged: int = 0
    kind: str = "lora"
    blocks: int = 0
    bits: int = 0


@record
class Load:
    """One process of a run.

    `engine` is "none" (one process or DDP), "deepspeed" or "fsdp"; `stage` what is sharded over `shard` processes
    (0 nothing, 1 optimizer states, 2 gradients, 3 weights). `offload` is 0, 1 (optimizer states in host memory) or 2
    (weights too). `element` is the bytes of a computed number, `weight` those of a stored one (of a frozen base: of
    that), `amp` says that stored float32 is computed in half precision. `moments` are bytes of optimizer state a
    trained parameter, `temporary` those that its step needs for a moment. `tokens` are those of one micro-batch,
    `length` those of one row of it. `trained` counts parameters that get a gradient, beside adapters. `loss` names a
    row of `memory.HEADS`. `beside` are bytes of frozen models that are kept next to the trained one. `evaluated` says
    what share of `tokens` a micro-batch of evaluation has. `selective` says that recomputation keeps what attention
    gave. `layers` are those that a gradient passes through, None for all. `stack` has the libraries that run them.
    `widened` says that embeddings and head are float32 beside a packed base, in half precision. `at_most` says that
    what grows with the batch is counted as the most that it can be, `reentrant` that recomputation is the older kind,
    `looped` that experts are computed one after the other.
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
    beside: float = 0.0
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

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.micro * self.length

    @property
    def mode(self) -> str:
        """The row of the coefficients: what is trained and in which precision.

        Adapters of a float32 base under autocast have a row of their own, and those of a packed base with float32
        beside it; FSDP computes with weights in half precision (accelerate's policy), whatever is stored.
        """
        precision = "amp" if self.amp else "bf16" if self.element == 2 else "fp32"
        tuned = self.adapters
        if tuned is None:
            return f"full/{precision}"
        if self.amp and self.engine == "none":
            if self.widened:
                precision = "wide"
            elif self.weight == 4:
                precision = "amp32"
        # Elsewhere what the others keep follows from LoRA's row (`adapters.py`).
        kind = tuned.kind if precision == "amp32" else "lora"
        return f"{kind}-{tuned.sites}/{precision}"

    @property
    def rank(self) -> int:
        """What the rows multiply "rank" by."""
        return 0 if self.adapters is None or self.adapters.kind == "oft" else self.adapters.rank
