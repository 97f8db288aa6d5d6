"""What a dtype does to weights, to layers, and to what the libraries decide by it."""

from __future__ import annotations

from typing import Any

import tiny_models


def changed(scene: Any) -> dict[str, Any]:
    """The share of one matrix's weights that training changed, against the same weights as they were loaded."""
    from safetensors.torch import load_file

    name, after = next((name, one) for name, one in scene.trainer.model.named_parameters() if "q_proj.weight" in name)
    before = load_file(f"{tiny_models.model(scene.family)}/model.safetensors")[name].to(after.dtype)
    return {"share": float((after.detach() != before).float().mean()), "dtype": str(after.dtype)}


def finite(scene: Any) -> dict[str, Any]:
    """Whether every weight is a number after training, and the dtype that the optimizer stepped."""
    weights = list(scene.trainer.model.parameters())
    return {"finite": all(bool(one.isfinite().all()) for one in weights), "dtype": str(weights[0].dtype)}


def amp(scene: Any) -> dict[str, Any]:
    """Whether half precision was asked for, and whether accelerate's autocast and scaler are there."""
    accelerator = scene.trainer.accelerator
    return {"asked": scene.args.fp16, "autocast": accelerator.native_amp, "scaler": accelerator.scaler is not None}


def mixed(scene: Any) -> dict[str, Any]:
    """The precision that the launcher exports, and the one that the arguments keep."""
    import look

    variables = scene.launched["environment"]
    with look.environment(**variables):
        used = scene.args.mixed_precision if hasattr(scene.args, "mixed_precision") else scene.args.bf16
    return {"exported": variables["ACCELERATE_MIXED_PRECISION"], "used": used}


def computed(scene: Any) -> dict[str, Any]:
    """The dtype that a layer's output has in the forward pass of training, and the one that `precision` states."""
    import torch

    seen: set[str] = set()
    model = scene.trainer.model_wrapped
    layer = next(one for name, one in model.named_modules() if name.endswith("q_proj"))
    layer.register_forward_hook(lambda module, given, out: seen.add(str(out.dtype)))
    with torch.no_grad():
        model(input_ids=torch.arange(3, 19)[None])
    stated = scene.plan["arguments"]
    return {"computed": sorted(seen), "mixed": stated["bf16"] or stated["fp16"]}


def deepspeed_fp16(scene: Any) -> dict[str, Any]:
    """Whether DeepSpeed is asked for fp16, and whether its accelerator, told of the spec's GPU, has it."""
    import torch
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

    capability = tuple(scene.plan["run"]["gpu"]["capability"])
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *_: capability
    asked = bool(scene.plan["arguments"].get("deepspeed")) and scene.plan["arguments"]["fp16"]
    supported = CUDA_Accelerator.is_fp16_supported(object.__new__(CUDA_Accelerator))
    return {"asked": asked, "supported": supported}


def downcast(scene: Any) -> dict[str, Any]:
    """What the file says of the TPU's downcast, and what of it reaches the processes."""
    import os

    with open(os.path.join(scene.folder, "accelerate.yaml"), encoding="utf-8") as handle:
        stated = "downcast_bf16: true" in handle.read()
    exported = scene.launched["environment"].get("ACCELERATE_DOWNCAST_BF16")
    return {"stated": stated, "exported": exported}
