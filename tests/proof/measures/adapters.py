"""Functions with which proofs measure adapters and quantized bases in peft and bitsandbytes."""

from __future__ import annotations

import os
import re
from typing import Any

import tiny_models


def absent(run: Any) -> dict[str, Any]:
    """The names in the adapter's `targets` that match no adapted module after the trainer is built."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    model = run.trainer.model
    found = {name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, BaseTunerLayer)}
    targets = run.plan["lora"]["targets"]
    return {"absent": [one for one in targets if one not in found] if isinstance(targets, list) else []}


def packed(run: Any) -> dict[str, Any]:
    """Build the trainer on a 4-bit base, with the bundle's adapter (if any). Raises any exception of the trainer."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from trl import SFTTrainer

    plan = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32)
    model = AutoModelForCausalLM.from_pretrained(tiny_models.model(run.family), quantization_config=plan)
    more = {"peft_config": tiny_models.adapters(run.plan["lora"], "sft")} if run.plan["lora"] else {}
    SFTTrainer(model=model, args=run.args, train_dataset=run.rows, processing_class=run.tokenizer, **more)
    return {"trains": True}


def packed_step(run: Any) -> dict[str, Any]:
    """Train one step of the bundle's adapters on a base of 4 or 8 bits. The adapters' dtype and the precision come from
    the bundle.
    """
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    from trl import SFTTrainer

    lora, precision = run.plan["lora"], run.plan["lora"]["compute_dtype"]
    four = {"load_in_4bit": True, "bnb_4bit_compute_dtype": getattr(torch, precision)}
    plan = BitsAndBytesConfig(**four) if lora["bits"] == 4 else BitsAndBytesConfig(load_in_8bit=True)
    dtype = getattr(torch, run.plan["model"]["dtype"])
    model = AutoModelForCausalLM.from_pretrained(tiny_models.model(run.family), quantization_config=plan, dtype=dtype)
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False
    trainer = SFTTrainer(model=model, args=run.args, train_dataset=run.rows, processing_class=run.tokenizer,
                         peft_config=tiny_models.adapters(lora, "sft"))  # fmt: skip
    batch = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
        trainer.compute_loss(trainer.model, batch).backward()
    return {"steps": True}


def stored_in_fp8(run: Any) -> dict[str, Any]:
    """Load the base, save it, and load the saved copy; return whether both have the same weights. If the spec names a
    local model, the base is first stored in fp8.
    """
    import tempfile

    import tiny
    import torch
    from transformers import AutoModelForCausalLM

    location = tiny_models.model(run.family)
    with tempfile.TemporaryDirectory() as folder:
        if run.plan["model"]["path"] is not None:
            tiny.store_in_fp8(location, folder)
            location = folder
        model = AutoModelForCausalLM.from_pretrained(location)
        model.save_pretrained(os.path.join(folder, "saved"))
        again = AutoModelForCausalLM.from_pretrained(os.path.join(folder, "saved"))
    pairs = zip(model.parameters(), again.parameters(), strict=True)
    return {"same": all(torch.allclose(one.float(), other.float(), atol=1e-2) for one, other in pairs)}


def dtypes_of_fp8(run: Any) -> dict[str, Any]:
    """Load an fp8 checkpoint in the bundle's dtype; return how many dtypes the loaded weights have. In the checkpoint,
    the weights that are not fp8 are float32.
    """
    import tempfile

    import tiny
    import torch
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        tiny.store_in_fp8(tiny_models.model(run.family), folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, run.plan["model"]["dtype"]))
    return {"dtypes": len({one.dtype for one in model.parameters()})}


def dtypes_of_mxfp4(run: Any) -> dict[str, Any]:
    """Load an MXFP4 checkpoint in the bundle's dtype. Return how many dtypes the loaded weights have, and whether the
    model can compute a loss.
    """
    import tempfile

    import tiny
    import torch
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        tiny.store_in_mxfp4(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, run.plan["model"]["dtype"]))
    ids = torch.arange(8)[None]
    try:
        computes = bool(model(input_ids=ids, labels=ids).loss.isfinite())
    except RuntimeError:
        computes = False
    return {"dtypes": len({one.dtype for one in model.parameters()}), "computes": computes}


def _in_four_bits(run: Any) -> Any:
    """The tiny model, loaded with 4-bit quantization."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    requested = BitsAndBytesConfig(load_in_4bit=True)
    return AutoModelForCausalLM.from_pretrained(tiny_models.model(run.family), quantization_config=requested)


def unpacked(run: Any) -> dict[str, Any]:
    """Quantize the model to 4 bits. Return how many of its weights are quantized then."""
    return {"packed": sum(type(one).__name__ == "Params4bit" for one in _in_four_bits(run).parameters())}


def experts(run: Any) -> dict[str, Any]:
    """Whether 4-bit quantization packs all weights of the MLPs, both in dense layers and in experts. Routers are not
    considered.
    """
    import torch

    model = _in_four_bits(run)
    found = {one.dtype for name, one in model.named_parameters() if ".mlp." in name and ".gate." not in name}
    return {"packed": found == {torch.uint8}}


def merged(run: Any) -> dict[str, Any]:
    """Let transformers merge two quantization configurations: from the base's config.json and from the bundle. Raises
    any exception of transformers.
    """
    from transformers import BitsAndBytesConfig
    from transformers.quantizers.auto import AutoHfQuantizer

    plan = run.plan["lora"]
    requested = BitsAndBytesConfig(load_in_4bit=True) if plan and plan["bits"] == 4 else None
    own = {"quant_method": "gptq", "bits": 4, "dataset": "c4"}
    AutoHfQuantizer.merge_quantization_configs(own, requested)
    return {"merged": True}


def cast(run: Any) -> dict[str, Any]:
    """Whether the values of a 4-bit base's weights stay the same when DeepSpeed converts the model to half
    precision.
    """
    import deepspeed
    import torch
    from bitsandbytes.functional import dequantize_4bit
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    plan = run.plan["lora"]
    requested = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=getattr(torch, plan["storage_dtype"]))
    model = AutoModelForCausalLM.from_pretrained(
        tiny_models.model(run.family), quantization_config=requested, dtype=getattr(torch, run.plan["model"]["dtype"])
    )
    weight = model.model.layers[0].self_attn.q_proj.weight
    before = dequantize_4bit(weight.data, weight.quant_state)
    os.environ["LOCAL_RANK"] = "0"
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    stated = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 1}
    deepspeed.initialize(model=model, config=stated)
    weight = model.model.layers[0].self_attn.q_proj.weight
    with deepspeed.zero.GatheredParameters([weight]):
        after = dequantize_4bit(weight.data, weight.quant_state)
    return {"same": torch.equal(before.float(), after.float())}


def quantized(run: Any) -> dict[str, Any]:
    """Train a step on the bundle's quantized base; return whether the packed weights are sharded over the processes."""
    import torch
    from torch.distributed.tensor import DTensor
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    plan = run.plan["lora"]
    requested = BitsAndBytesConfig(load_in_8bit=True)
    if plan["bits"] == 4:
        storage = getattr(torch, plan["storage_dtype"])
        requested = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_storage=storage
        )
    dtype = getattr(torch, run.plan["model"]["dtype"])
    run.__dict__["model"] = AutoModelForCausalLM.from_pretrained(
        tiny_models.model(run.family), quantization_config=requested, dtype=dtype
    )
    trainer = run.trainer
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
    """How many elements of a parameter this process holds under ZeRO-3: all of them if the parameter is not sharded."""
    own = getattr(part, "ds_tensor", None)
    return int(part.numel() if own is None else own.numel())


def outside_adapters(run: Any) -> dict[str, Any]:
    """How many of the trained weights belong to no adapter."""
    others = [name for name, one in run.trainer.model.named_parameters() if one.requires_grad and ".lora_" not in name]
    return {"others": len(others)}


def stepped(run: Any) -> dict[str, Any]:
    """Whether all trained weights are in the optimizer's parameter groups."""
    optimizer = run.trainer.create_optimizer()
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    trained = [one for one in run.trainer.model.parameters() if one.requires_grad]
    return {"held": all(id(one) in held for one in trained)}


def left(run: Any) -> dict[str, Any]:
    """Make only those weights trainable that `freeze` names, and run the training. Return whether the training has
    changed any weight.
    """
    from xpc.runtime.features.model.frozen_weights import _layers

    plan, model = run.plan["freeze"], run.trainer.model
    home, _ = _layers(model)
    kept = plan["modules"] or []
    for name, weight in model.named_parameters():
        weight.requires_grad_(not name.startswith(home) and any(f".{one}." in name for one in kept))
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    run.trainer.train()
    return {"moves": any(not weight.equal(before[name]) for name, weight in model.named_parameters())}


def tied(run: Any) -> dict[str, Any]:
    """For a model with tied embeddings: merge the adapters, save the model and load it; return whether the logits are
    the same as before.
    """
    import tempfile

    import torch
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    settings = tiny_models.config(run.family)
    settings.tie_word_embeddings = True
    model = get_peft_model(
        AutoModelForCausalLM.from_config(settings), tiny_models.adapters(run.plan["lora"], "sft")
    ).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # peft initializes these weights to zero, which would hide an error; embeddings have adapter weights of
            # another name
            if weight.requires_grad and re.search(r"\.(lora_B|lora_embedding_A|modules_to_save)\.", name):
                weight.add_(0.1 * torch.randn_like(weight))
        ids = torch.arange(3, 40)[None]
        before = model(input_ids=ids).logits
        with tempfile.TemporaryDirectory() as folder:
            model.merge_and_unload().save_pretrained(folder)
            after = AutoModelForCausalLM.from_pretrained(folder).eval()(input_ids=ids).logits
    return {"kept": bool((after - before).abs().max() < 1e-2)}


def merges(run: Any) -> dict[str, Any]:
    """Whether a run with this trainer_args.json uses the runtime's feature that merges adapters."""
    from xpc.runtime.core.conditions import uses

    return {"merges": uses(run.plan)["merged_adapters"]}


def folded(run: Any) -> dict[str, Any]:
    """Whether merging the adapters into the bundle's base leaves the logits of the trainer's model unchanged."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    if run.plan["lora"]["bits"] == 4:
        requested = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.float32)
        run.__dict__["model"] = AutoModelForCausalLM.from_pretrained(
            tiny_models.model(run.family), quantization_config=requested
        )
    model = run.trainer.model.eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".lora_B." in name:
                weight.add_(0.1 * torch.randn_like(weight))
        if run.plan["run"]["zero_stage"] == 3:  # without DeepSpeed's engine there is no forward pass
            model.merge_and_unload(safe_merge=True)
            return {"kept": True}
        ids = torch.arange(3, 40)[None]
        before = model(input_ids=ids).logits
        after = model.merge_and_unload(safe_merge=True)(input_ids=ids).logits
    return {"kept": bool((after - before).abs().max() < 1e-3)}


def patterns(run: Any) -> dict[str, Any]:
    """Compile the regular expressions of `freeze`. Raises the exception of `re` for an invalid expression."""
    import re

    return {"read": len([re.compile(one) for one in run.plan["freeze"]["parameters"] or []])}


def trained(run: Any) -> dict[str, Any]:
    """Run the bundle's own trainer on a base that is quantized to the stated number of bits."""
    import bundled

    run.model = bundled.load(run)
    trainer = bundled.trainer(run)
    trainer.train()
    return {"steps": trainer.state.global_step}
