"""Functions with which proofs measure attention: an ignored soft cap, positions beyond the context, and dropout."""

from __future__ import annotations

import json
import os
from typing import Any

import tiny_models

CONTEXT = 32768
"""The context length of the model in the case about long sequences."""


def soft_cap(run: Any) -> dict[str, Any]:
    """For a model with a small soft cap, compute the logits with the bundle's attention and with eager attention.
    Return the largest difference between the two.
    """
    import torch

    ids = torch.randint(3, 1000, (1, 24), generator=torch.Generator().manual_seed(0))
    found = []
    for name in (run.plan["model"]["attn_implementation"], "eager"):
        model = tiny_models.load(run.family, {"dtype": "float32", "attn_implementation": name}).eval()
        torch.manual_seed(0)
        for part in model.modules():
            if hasattr(part, "attn_logit_softcapping"):
                part.attn_logit_softcapping = 0.5
        for weights in model.parameters():
            if weights.dim() > 1:
                torch.nn.init.normal_(weights, std=0.3)
        with torch.no_grad():
            found.append(model(input_ids=ids, use_cache=False).logits)
    return {"error": float((found[0] - found[1]).abs().max())}


def past(run: Any) -> dict[str, Any]:
    """Compute the loss of one row. Return whether the row is longer than the tiny model's context, and whether the loss
    is finite.

    The row's length and the tiny model's context are in the same proportion as in the spec: if `seq` is twice CONTEXT
    (the context of the spec's model), the row is twice as long as the tiny model's context.
    """
    import torch

    limit = run.model.config.max_position_embeddings
    length = limit * run.plan["run"]["seq"] // CONTEXT
    ids = torch.randint(3, 1000, (1, length), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        loss = run.model(input_ids=ids, labels=ids).loss
    return {"beyond": length > limit, "finite": bool(loss.isfinite())}


def one_more(run: Any) -> dict[str, Any]:
    """Make a forward pass over one row. If `seq` is 10 tokens above 1024, the context of the spec's model, the row is
    10 tokens longer than the tiny model's context.
    """
    import torch

    limit = run.model.config.max_position_embeddings
    length = limit + run.plan["run"]["seq"] - 1024
    with torch.no_grad():
        scores = run.model(input_ids=torch.full((1, length), 3)).logits
    return {"tokens": scores.shape[1]}


def dispatch(run: Any) -> dict[str, Any]:
    """Pretend that the package of flash attention is installed. Then call the function of transformers that decides
    whether the model can use flash attention.
    """
    with open(os.path.join(run.folder, "..", "files", "model", "config.json"), encoding="utf-8") as handle:
        share = json.load(handle)["attention_dropout"]
    model = tiny_models.load(run.family, {"dtype": "bfloat16", "attn_implementation": "eager"})
    model.config.attention_dropout = share
    model._flash_attn_import_error = lambda **_: None
    version = int(run.plan["model"]["attn_implementation"][-1])
    return {"passed": model._flash_attn_can_dispatch(version, is_init_check=True)}
