"""What fused kernels and compilation change of a model, and what they cost."""

from __future__ import annotations

from typing import Any


def patched(scene: Any) -> dict[str, Any]:
    """How many modules of the loaded model compute otherwise once Liger was applied to it."""
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    def functions() -> list[Any]:
        return [getattr(type(one).forward, "__qualname__", "") + str(one.__dict__.get("forward")) for one in modules]

    modules = list(scene.model.modules())
    before = functions()
    _apply_liger_kernel_to_instance(model=scene.model)
    return {"patched": sum(one != other for one, other in zip(before, functions(), strict=True))}


def liger_step(scene: Any) -> dict[str, Any]:
    """One forward pass, with Liger's layer kernels where the bundle asks for them. Raises what Triton raises."""
    import torch

    stated = scene.plan["arguments"].get("use_liger_kernel")
    if scene.plan["model"]["liger"] or stated:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=scene.model, fused_linear_cross_entropy=False, cross_entropy=False)
    scene.model(input_ids=torch.arange(3, 19)[None])
    return {}


def compiled(scene: Any) -> dict[str, Any]:
    """What was asked of compilation, and what the arguments make of it."""
    return {"asked": scene.plan["arguments"]["torch_compile"], "compiles": scene.args.torch_compile}


def smoothed(scene: Any) -> dict[str, Any]:
    """The gradient's norm of the first step by the accumulation, against that of a step of one micro-batch."""
    logged = [one["grad_norm"] for one in scene.trainer.state.log_history if "grad_norm" in one]
    return {"norm": float(logged[0]), "accumulation": scene.args.gradient_accumulation_steps}


def liger_scores(scene: Any) -> dict[str, Any]:
    """The answer of a reward model that Liger has patched where the bundle asks for it, as transformers has it patched.

    The layers' kernels, which need a GPU, stay off; the forward pass with the fused loss is what is looked at.
    """
    import torch

    if scene.plan["arguments"]["use_liger_kernel"]:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=scene.model, rope=False, rms_norm=False, swiglu=False)
    with torch.no_grad():
        scores = scene.model(input_ids=torch.tensor([[3, 4, 5]])).logits
    return {"scores": list(scores.shape)}


def regions(scene: Any) -> dict[str, Any]:
    """Whether compilation was asked for, and whether accelerate would compile layer by layer where the runtime asks."""
    import os
    from unittest import mock

    from accelerate.utils import TorchDynamoPlugin

    asked = str(bool(scene.plan["model"].get("compile_layers"))).lower()
    with mock.patch.dict(os.environ, ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION=asked):
        plugin = TorchDynamoPlugin(backend=scene.args.torch_compile_backend)
    return {"asked": scene.args.torch_compile, "by_layer": bool(getattr(plugin, "use_regional_compilation", False))}


def selected(scene: Any) -> dict[str, Any]:
    """Whether the output of attention should be kept, and of how many layers a forward pass keeps it."""
    import gc

    import torch
    from torch.utils import checkpoint

    scene.model.gradient_checkpointing_enable()
    out = scene.model.train()(input_ids=torch.arange(3, 19)[None])
    modes = [one for one in gc.get_objects() if type(one) is checkpoint._CachedTorchDispatchMode]
    caches = {id(one.storage): one.storage for one in modes}
    kept = sum(len(found) for one in caches.values() for name, found in one.items() if "attention" in str(name))
    del out
    asked = scene.plan["arguments"].get("gradient_checkpointing_kwargs") or {}
    return {"asked": "selective" in asked, "kept": kept}
