"""Functions with which proofs measure mixtures of experts in transformers."""

from __future__ import annotations

from typing import Any

import tiny_models


def computed(run: Any) -> dict[str, Any]:
    """Make a forward pass with granitemoehybrid. If the spec's model is the folder `model`, the configuration has no
    experts.
    """
    import torch
    from transformers import AutoModelForCausalLM

    settings = tiny_models.config("granitemoehybrid")
    if run.plan["model"]["path"].endswith("model"):
        settings.num_local_experts = settings.num_experts_per_tok = 0
    model = AutoModelForCausalLM.from_config(settings)
    return {"logits": len(model(input_ids=torch.arange(3, 20)[None]).logits)}
