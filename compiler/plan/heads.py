"""The memory of logits, loss and their gradients, by kind of head."""

from __future__ import annotations

from collections.abc import Mapping

from xpc.compiler.plan.load import Load

HEADS: Mapping[str, tuple[int, int]] = {
    # The two numbers are the peak bytes that logits and loss take, per token and vocabulary entry: the first in half
    # precision, the second in fp32. The comments list the tensors that exist at the peak.
    "kept": (14, 16),  # at the peak: logits, log-softmax of an fp32 copy, two gradients, and the model's outputs
    "freed": (12, 12),  # at the peak: the tensors of the entry "kept", but no model outputs, which are freed earlier
    "shifted": (16, 16),  # transformers before 4.45, at the peak: fp32 logits, log-softmax, two gradients
    "half": (8, 16),  # at the peak, in the logits' dtype: logits, a copy shifted by one token, log-softmax, gradient
    "chunks": (6, 12),  # litgpt, at the peak: logits, log-softmax and gradient, all in chunks and in the logits' dtype
    "half_in_place": (6, 12),  # at the peak, in the logits' dtype: logits, a copy shifted by one token, gradient
    "in_place": (8, 8),  # a Triton cross entropy that overwrites the fp32 logits with the gradient
    # at the peak: scaled logits and log-softmax of both student and teacher, the divergence, its gradients (trl 0.24)
    "divergence": (22, 44),
    # at the peak: the tensors of the entry "divergence" and, for 0 < `beta` < 1, those of the mixture of both
    # models' probabilities
    "mixture": (36, 72),
    "score": (0, 0),  # a reward model returns one number for each token
    "fused": (0, 0),  # this head computes logits in chunks; `_fused` counts its bytes
    "trl_fused": (0, 0),
}
"""Maps each kind of head to the peak bytes that logits and loss take, per token and vocabulary entry. The first number
is for half precision, the second for fp32. Both follow from the tensors that autograd saves (transformers 5.23, 4.57,
torch 2.13).
"""
CAPPED = ("gemma2",)
"""Families whose head limits the logits with tanh. The backward pass needs tanh's output, in the logits' dtype."""
CHUNK = 4096
"""TRL 1.16's fused head computes logits in chunks of at most this many tokens. For each token, a chunk has at most
32,768 entries of the vocabulary (trl/models/fused_linear.py).
"""


def logits(load: Load) -> float:
    """The peak bytes of the logits, the loss and their gradients."""
    facts, tokens = load.facts, load.micro * (load.scored or load.length)
    each = HEADS[load.loss][0 if load.element == 2 else 1] + load.element * (load.family in CAPPED)
    if load.loss in ("fused", "trl_fused"):
        return _fused(load)
    # A loss that compares two models also keeps three tensors for the tokens of prompts: the logits of both models, and
    # one gradient.
    prompts = 3 * load.element * (load.tokens - tokens) if load.loss in ("divergence", "mixture") else 0
    return float(facts.vocab * (tokens * each + prompts) + 4 * tokens * facts.hidden)


def _fused(load: Load) -> float:
    """Bytes of a head that computes logits in chunks: the gradients of the hidden states and of the head's weight, and
    the logits of one chunk.
    """
    facts, tokens, element = load.facts, load.tokens, load.element
    weight = (facts.vocab * facts.hidden if load.trained else 0) if load.adapters is None else load.adapters.head
    if load.loss == "trl_fused":
        return float(4 * tokens * facts.hidden + (4 + element) * weight + min(tokens, CHUNK) * 32768 * element)
    # Liger 0.8.5 `fused_linear_cross_entropy.py`: a chunk has about tokens x hidden / vocabulary rows, rounded up to a
    # power of two
    rows = 1
    while rows < tokens * facts.hidden / facts.vocab:
        rows *= 2
    return float(element * tokens * facts.hidden + element * weight + 2.0 * rows * facts.vocab * (element + 4))
