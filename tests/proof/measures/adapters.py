"""What peft and bitsandbytes make of adapters and quantized bases."""

from __future__ import annotations

from typing import Any

import tiny_models


def absent(scene: Any) -> dict[str, Any]:
    """Targets that no adapter stands on once the trainer is made."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    model = scene.trainer.model
    found = {name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, BaseTunerLayer)}
    targets = scene.plan["lora"]["targets"]
    return {"absent": [one for one in targets if one not in found] if isinstance(targets, list) else []}


def packed(scene: Any) -> dict[str, Any]:
    """The trainer over a base of 4 bits, with the bundle's adapter or none."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from trl import SFTTrainer

    plan = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32)
    model = AutoModelForCausalLM.from_pretrained(tiny_models.model(scene.family), quantization_config=plan)
    more = {"peft_config": tiny_models.adapters(scene.plan["lora"], "sft")} if scene.plan["lora"] else {}
    SFTTrainer(model=model, args=scene.args, train_dataset=scene.rows, processing_class=scene.tokenizer, **more)
    return {"trains": True}


def merged(scene: Any) -> dict[str, Any]:
    """transformers' merge of the base's own quantization with the one that the bundle asks for."""
    from transformers import BitsAndBytesConfig
    from transformers.quantizers.auto import AutoHfQuantizer

    plan = scene.plan["lora"]
    asked = BitsAndBytesConfig(load_in_4bit=True) if plan and plan["bits"] == 4 else None
    own = {"quant_method": "gptq", "bits": 4, "dataset": "c4"}
    AutoHfQuantizer.merge_quantization_configs(own, asked)
    return {"merged": True}


def quantized(scene: Any) -> dict[str, Any]:
    """A step over the base that the bundle asks for, and whether its packed weights are spread over the processes."""
    import torch
    from torch.distributed.tensor import DTensor
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    plan = scene.plan["lora"]
    asked = BitsAndBytesConfig(load_in_8bit=True)
    if plan["bits"] == 4:
        storage = getattr(torch, plan["storage_dtype"])
        asked = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_storage=storage
        )
    dtype = getattr(torch, scene.plan["model"]["dtype"])
    scene.__dict__["model"] = AutoModelForCausalLM.from_pretrained(
        tiny_models.model(scene.family), quantization_config=asked, dtype=dtype
    )
    trainer = scene.trainer
    trainer.train()
    packed = [part for name, part in trainer.model.named_parameters() if "base_layer.weight" in name]
    kept = [
        part.state.CB
        for part in trainer.model.modules()
        if getattr(getattr(part, "state", None), "CB", None) is not None
    ]
    return {
        "steps": trainer.state.global_step,
        "whole": any(one.numel() == part.numel() for one in kept for part in packed),
        "sharded": all(isinstance(part, DTensor) or _share(part) < part.numel() for part in packed),
    }


def _share(part: Any) -> int:
    """Elements of a parameter that ZeRO-3 leaves in this process; all of them where it is not spread."""
    own = getattr(part, "ds_tensor", None)
    return int(part.numel() if own is None else own.numel())
