"""The bytes that the plan counts for logits and loss are the bytes of the tensors that exist while the real loss is
computed.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import family_models
import points
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from xpc.compiler.plan.heads import HEADS, logits
from xpc.grammar.record import evolve

pytestmark = pytest.mark.slow
TOKENS, WORDS, WIDTH = 64, 8192, 32


class Alive(TorchDispatchMode):
    """Counts the bytes of those storages that are created inside the block and are still alive.

    `most` is the largest number of bytes that were alive at once. Each time that two tensors as large as an embedding
    table are added, `sums` gets the bytes that are then alive.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[int, int] = {}
        self.most = 0
        self.sums: list[int] = []

    def __torch_dispatch__(
        self, function: Any, types: Any, given: tuple[Any, ...] = (), named: Mapping[str, Any] | None = None
    ) -> Any:
        out = function(*given, **(named or {}))
        for one in tree_flatten(out)[0]:
            if isinstance(one, torch.Tensor):
                storage = one.untyped_storage()
                key = storage._cdata
                if key not in self.sizes:
                    self.sizes[key] = storage.nbytes()
                    self.most = max(self.most, sum(self.sizes.values()))
                    weakref.finalize(storage, self.sizes.pop, key, None)
        if function is torch.ops.aten.add.Tensor and out.numel() == WORDS * WIDTH:
            self.sums.append(sum(self.sizes.values()))
        return out


@pytest.mark.parametrize(("half", "dtype"), [(True, torch.bfloat16), (False, torch.float32)], ids=["bf16", "fp32"])
@pytest.mark.parametrize(("beta", "head"), [(0.0, "divergence"), (0.5, "mixture"), (1.0, "divergence")])
def test_a_divergence_holds_what_the_plan_counts(beta: float, head: str, half: bool, dtype: torch.dtype) -> None:
    """The plan counts as many bytes as GKDTrainer's loss needs with beta 1. With beta 0, the loss needs one copy of the
    logits fewer.
    """
    from trl.experimental.gkd import GKDTrainer

    student = torch.randn(WORDS, WIDTH, dtype=dtype, requires_grad=True)
    teacher = torch.randn(WORDS, WIDTH, dtype=dtype)
    hidden = torch.randn(1, TOKENS, WIDTH, dtype=dtype, requires_grad=True)
    with Alive() as alive:
        logits = hidden @ student.t()
        with torch.no_grad():
            others = hidden @ teacher.t()
        labels = torch.zeros(1, TOKENS, dtype=torch.long)
        GKDTrainer.generalized_jsd_loss(logits, others, labels=labels, beta=beta).backward()
    counted = HEADS[head][0 if half else 1]
    measured = alive.most / (TOKENS * WORDS)
    assert counted - (0 if beta else counted / 11) <= measured + 0.1
    assert measured <= counted + 0.1


@pytest.mark.parametrize("head", ["model", "trl"])
def test_a_tied_table_has_two_gradients_and_their_sum(head: str) -> None:
    """A tied embedding table gets two gradients: one from the embedding, and one from the output head. They are added
    at the end of the backward pass; then three tensors of the table's size exist, both gradients and their sum. In a
    second micro-batch, the sum is then added to the stored gradient.
    """
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    more = {} if head == "model" else {"fused_lm_head": True}
    if more:
        add_fused_lm_head(model)
    tokens, counted = torch.zeros(1, 4, dtype=torch.long), []
    for _ in range(2):
        with Alive() as alive:
            alive.sizes[model.lm_head.weight.untyped_storage()._cdata] = 0
            model(input_ids=tokens, labels=tokens, **more).loss.backward()
        counted += [size / (2 * WORDS * WIDTH) for size in alive.sums]
    # the stored gradient of the first micro-batch is a fourth tensor, but it existed before the `with` block, so it is
    # not counted
    assert counted == [pytest.approx(3, abs=0.2)] * 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_head_that_limits_logits_keeps_one_more_copy(dtype: torch.dtype) -> None:
    """Gemma 2 divides the logits, applies tanh, and multiplies. The backward pass needs tanh's output."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    most = []
    for cap in (None, 30.0):
        config = Gemma2Config(
            vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
            num_key_value_heads=1, head_dim=32, final_logit_softcapping=cap,
        )  # fmt: skip
        model = Gemma2ForCausalLM(config).to(dtype)
        tokens = torch.zeros(1, TOKENS, dtype=torch.long)
        with Alive() as alive:
            model(input_ids=tokens, labels=tokens).loss.backward()
        most.append(alive.most / (TOKENS * WORDS))
    facts = family_models.facts("gemma2", (96, 96, 4, 2, 24, 4, 2), 2)
    plain = points.load(points.rows("memory_points.jsonl")[0])
    counted = [logits(evolve(plain, facts=facts, family=one, element=dtype.itemsize)) for one in ("gemma", "gemma2")]
    assert most[1] - most[0] == pytest.approx((counted[1] - counted[0]) / (plain.tokens * facts.vocab), abs=0.1)
