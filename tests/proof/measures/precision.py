"""Functions with which proofs measure dtypes of weights and layers, and decisions of libraries that depend on a
dtype.
"""

from __future__ import annotations

import inspect
from typing import Any

import tiny_models


def changed(run: Any) -> dict[str, Any]:
    """Compare a weight matrix before and after training; return the share of its values that have changed, and its
    dtype.
    """
    from safetensors.torch import load_file

    name, after = next((name, one) for name, one in run.trainer.model.named_parameters() if "q_proj.weight" in name)
    before = load_file(f"{tiny_models.model(run.family)}/model.safetensors")[name].to(after.dtype)
    return {"share": float((after.detach() != before).float().mean()), "dtype": str(after.dtype)}


def finite(run: Any) -> dict[str, Any]:
    """Return whether every weight is finite after training, and the dtype of the weights."""
    weights = list(run.trainer.model.parameters())
    return {"finite": all(bool(one.isfinite().all()) for one in weights), "dtype": str(weights[0].dtype)}


def head(run: Any) -> dict[str, Any]:
    """Return whether the trained head of a reward model is finite after training."""
    weights = [one for name, one in run.trainer.model.named_parameters() if "score" in name and one.requires_grad]
    return {"finite": bool(weights) and all(bool(one.isfinite().all()) for one in weights)}


def amp(run: Any) -> dict[str, Any]:
    """Whether the arguments request fp16, and whether accelerate then uses both autocast and a gradient scaler."""
    accelerator = run.trainer.accelerator
    return {"asked": run.args.fp16, "autocast": accelerator.native_amp, "scaler": accelerator.scaler is not None}


def mixed(run: Any) -> dict[str, Any]:
    """The precision twice: the name that the launcher exports to the processes, and the name in the trainer's
    arguments.
    """
    import inspect_bundles

    variables = run.launched["environment"]
    with inspect_bundles.environment(**variables):
        used = run.args.mixed_precision if hasattr(run.args, "mixed_precision") else run.args.bf16
    return {"exported": variables["ACCELERATE_MIXED_PRECISION"], "used": used}


def computed(run: Any) -> dict[str, Any]:
    """Measure the dtype of a layer's output in a forward pass, and whether the bundle states half precision."""
    import torch

    seen: set[str] = set()
    model = run.trainer.model_wrapped
    layer = next(one for name, one in model.named_modules() if name.endswith("q_proj"))
    layer.register_forward_hook(lambda module, given, out: seen.add(str(out.dtype)))
    with torch.no_grad():
        model(input_ids=torch.arange(3, 19)[None])
    stated = run.plan["arguments"]
    return {"computed": sorted(seen), "mixed": stated["bf16"] or stated["fp16"]}


def deepspeed_fp16(run: Any) -> dict[str, Any]:
    """Whether DeepSpeed's file enables fp16, and whether DeepSpeed says that the spec's GPU supports fp16."""
    import torch
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

    capability = tuple(run.plan["run"]["gpu"]["capability"])
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *_: capability
    requested = bool(run.plan["arguments"].get("deepspeed")) and run.plan["arguments"]["fp16"]
    supported = CUDA_Accelerator.is_fp16_supported(object.__new__(CUDA_Accelerator))
    return {"asked": requested, "supported": supported}


def downcast(run: Any) -> dict[str, Any]:
    """accelerate's option `downcast_bf16` for TPUs: its value in accelerate.yaml, and the value in the processes'
    environment.
    """
    import os

    with open(os.path.join(run.folder, "accelerate.yaml"), encoding="utf-8") as handle:
        stated = "downcast_bf16: true" in handle.read()
    exported = run.launched["environment"].get("ACCELERATE_DOWNCAST_BF16")
    return {"stated": stated, "exported": exported}


def messages(run: Any) -> dict[str, Any]:
    """Whether DeepSpeed, according to deepspeed.json, would send gradients or add them up in bf16."""
    import json
    import os

    from deepspeed.runtime.config import DtypeEnum, get_communication_data_type

    with open(os.path.join(run.folder, "deepspeed.json"), encoding="utf-8") as handle:
        stated = json.load(handle)
    sums = stated.get("data_types", {}).get("grad_accum_dtype")
    found = {get_communication_data_type(stated), None if sums is None else DtypeEnum(sums).value}
    return {"bf16": any("bfloat16" in str(one) for one in found)}


def alibi(run: Any) -> dict[str, Any]:
    """Whether Falcon rounds its ALiBi position biases to bf16 although the run is in float32, and whether the spec's
    GPU has bf16.
    """
    import torch
    from transformers.models.falcon.modeling_falcon import build_alibi_tensor

    found = build_alibi_tensor(torch.ones(1, 300, dtype=torch.long), 12, torch.float32)
    slope = found[:, 0, 1:2].double()
    exact = slope * torch.arange(300)
    rounded = bool(((found[:, 0].double() - exact).abs() > 1e-6 * exact.abs()).any())
    return {"rounded": rounded, "ampere": tuple(run.plan["run"]["gpu"]["capability"]) >= (8, 0)}


def kept(run: Any) -> dict[str, Any]:
    """The dtypes of the trained weights and of the rotary frequencies, before and after the trainer has generated a
    round of completions.

    The trainer's own code converts the dtypes. Only the generation itself is replaced, because it takes half a minute
    on a CPU.
    """
    trainer = run.trainer

    def types() -> dict[str, list[str]]:
        frequencies = {str(one.dtype) for name, one in trainer.model.named_buffers() if "inv_freq" in name}
        weights = {str(one.dtype) for one in trainer.model.parameters()}
        return {"weights": sorted(weights), "frequencies": sorted(frequencies)}

    trainer.model_wrapped = trainer.model
    trainer.model.generate_batch = lambda *_, **__: {}
    before = types()
    # in trl 0.24, this method tokenizes the prompts; later versions of trl pass token ids to it
    texts = "prompts" in inspect.signature(trainer._generate_single_turn).parameters
    trainer._generate_single_turn(*([["a b c"], None] if texts else [[[3, 4, 5]], None, {}, 2]))
    return {"before": before, "after": types(), "narrowed": types() != before}


def loaded(run: Any) -> dict[str, Any]:
    """Whether the model's weights have the dtype that the bundle states."""
    kinds = {str(one.dtype).removeprefix("torch.") for one in run.model.parameters()}
    return {"as_stated": kinds == {run.plan["model"]["dtype"]}}
