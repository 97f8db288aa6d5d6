"""Functions with which proofs measure, in peft and TRL, how a run continues to train the adapter of an earlier run."""

from __future__ import annotations

from typing import Any


def loaded(run: Any) -> dict[str, Any]:
    """Save an adapter of rank 4 as peft does, and load its weights into the trainer's adapter."""
    import tiny_models
    from peft import get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
    from transformers import AutoModelForCausalLM

    plan = {**run.plan["lora"], "rank": 4}
    base = AutoModelForCausalLM.from_pretrained(tiny_models.model(run.family))
    saved = get_peft_model_state_dict(get_peft_model(base, tiny_models.adapters(plan, "sft")))
    reported = set_peft_model_state_dict(run.trainer.model, saved)
    return {"unexpected": list(reported.unexpected_keys)}


def reference(run: Any) -> dict[str, Any]:
    """Whether policy and reference differ before the first step. The reference is the model without adapters.

    If the run continues an adapter, the function first sets the adapter's B matrices to 0.1, as if the adapter had been
    trained.
    """
    import torch

    model = run.trainer.model
    if (run.plan["lora"] or {}).get("continued"):
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if ".lora_B.default." in name:
                    weight.fill_(0.1)
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        policy = model.eval()(input_ids=ids).logits
        with model.disable_adapter():
            bare = model(input_ids=ids).logits
    return {"apart": bool((policy - bare).abs().max() > 1e-4)}
