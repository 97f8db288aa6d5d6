"""Functions with which proofs measure peft's adapter initializations: their effects on the base, the reference and the
adapters.
"""

from __future__ import annotations

import math
from typing import Any

import tiny_models


def base_kept(run: Any) -> dict[str, Any]:
    """Whether the base weights inside the trainer's model still equal the published weights."""
    from transformers import AutoModelForCausalLM

    published = AutoModelForCausalLM.from_pretrained(tiny_models.model(run.family)).state_dict()
    state = run.trainer.model.base_model.model.state_dict()
    own = {name.replace(".base_layer", ""): weight for name, weight in state.items()}
    return {"kept": all(own[name].equal(weight) for name, weight in published.items() if name in own)}


def first_loss(run: Any) -> dict[str, Any]:
    """Whether the first loss of dpo is ln 2, as it must be if the policy equals the reference."""
    import torch

    trainer = run.trainer
    batch = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.model.eval()
    with torch.no_grad():
        loss = float(trainer.compute_loss(trainer.model, batch))
    return {"equal": abs(loss - math.log(2)) < 1e-4}


def embeddings(run: Any) -> dict[str, Any]:
    """Whether one of an adapter's two matrices is zero before training, as it is in peft's default initialization."""
    ends = (".lora_embedding_A.", ".lora_B.")
    found = [one for name, one in run.trainer.model.named_parameters() if any(end in name for end in ends)]
    return {"usual": any(not one.any() for one in found)}


def ranks(run: Any) -> dict[str, Any]:
    """Whether each adapter has the rank that its configuration states."""
    rank = run.plan["lora"]["rank"]
    found = [len(one) for name, one in run.trainer.model.named_parameters() if ".lora_A." in name]
    return {"stated": all(one == rank for one in found)}


def rows(run: Any) -> dict[str, Any]:
    """Initialize adapters by EVA from the trainer's rows."""
    from peft import EvaConfig, get_eva_state_dict

    config = run.trainer.model.peft_config["default"]
    config.eva_config = EvaConfig()
    batches = [next(iter(run.trainer.get_train_dataloader()))]
    return {"layers": len(get_eva_state_dict(run.trainer.model, batches, config, show_progress_bar=False))}


def rounding(run: Any) -> dict[str, Any]:
    """Load the base model, in 4 bits if the bundle says so, and add the adapters. LoftQ corrects the rounding errors of
    quantized layers, so the function then reads the quantization state of each adapted layer. If the base model is not
    in 4 bits, a layer has no such state, and AttributeError is raised.
    """
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    lora = run.plan["lora"]
    more = {"quantization_config": BitsAndBytesConfig(load_in_4bit=True)} if lora["bits"] == 4 else {}
    base = AutoModelForCausalLM.from_pretrained(tiny_models.model(run.family), **more)
    model = get_peft_model(base, tiny_models.adapters(lora, "sft"))
    layers = [one for one in model.modules() if "default" in (getattr(one, "lora_A", None) or ())]
    return {"layers": len([one.get_base_layer().weight.quant_state for one in layers])}
