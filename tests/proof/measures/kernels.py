"""Functions with which proofs measure fused kernels and compilation: what they change in a model, and what they
cost.
"""

from __future__ import annotations

from typing import Any


def patched(run: Any) -> dict[str, Any]:
    """Apply Liger to the loaded model. Return the number of modules that get another forward method."""
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    def functions() -> list[Any]:
        return [getattr(type(one).forward, "__qualname__", "") + str(one.__dict__.get("forward")) for one in modules]

    modules = list(run.model.modules())
    before = functions()
    _apply_liger_kernel_to_instance(model=run.model)
    return {"patched": sum(one != other for one, other in zip(before, functions(), strict=True))}


def liger_step(run: Any) -> dict[str, Any]:
    """Make a forward pass with the bundle's layers, which have Liger's kernels if the bundle uses Liger. Raises any
    exception of Triton.
    """
    import torch

    stated = run.plan["arguments"].get("use_liger_kernel")
    if run.plan["model"]["liger"] or stated:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=run.model, fused_linear_cross_entropy=False, cross_entropy=False)
    run.model(input_ids=torch.arange(3, 19)[None])
    return {}


def compiled(run: Any) -> dict[str, Any]:
    """Return whether the bundle states compilation, and whether the trainer's arguments turn compilation on."""
    return {"asked": run.plan["arguments"]["torch_compile"], "compiles": run.args.torch_compile}


def smoothed(run: Any) -> dict[str, Any]:
    """Return two numbers: the norm of the gradient in the first step, and how many micro-batches the step has."""
    logged = [one["grad_norm"] for one in run.trainer.state.log_history if "grad_norm" in one]
    return {"norm": float(logged[0]), "accumulation": run.args.gradient_accumulation_steps}


def liger_scores(run: Any) -> dict[str, Any]:
    """The shape of the scores that a reward model computes. If the bundle uses Liger, the model is patched with Liger
    as transformers would do.

    Liger's layer kernels are off, because they need a GPU. What is tested is the forward pass with the fused loss.
    """
    import torch

    if run.plan["arguments"]["use_liger_kernel"]:
        from liger_kernel.transformers import _apply_liger_kernel_to_instance

        _apply_liger_kernel_to_instance(model=run.model, rope=False, rms_norm=False, swiglu=False)
    with torch.no_grad():
        scores = run.model(input_ids=torch.tensor([[3, 4, 5]])).logits
    return {"scores": list(scores.shape)}


def regions(run: Any) -> dict[str, Any]:
    """Whether the bundle requests compilation, and whether accelerate would then compile each layer separately. The
    runtime relies on separate compilation.
    """
    import os
    from unittest import mock

    from accelerate.utils import TorchDynamoPlugin

    requested = str(bool(run.plan["model"].get("compile_layers"))).lower()
    with mock.patch.dict(os.environ, ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION=requested):
        plugin = TorchDynamoPlugin(backend=run.args.torch_compile_backend)
    return {"asked": run.args.torch_compile, "by_layer": bool(getattr(plugin, "use_regional_compilation", False))}


def selected(run: Any) -> dict[str, Any]:
    """Whether the bundle asks to keep attention's output for the backward pass, and in how many layers a forward pass
    really keeps it.
    """
    import gc

    import torch
    from torch.utils import checkpoint

    run.model.gradient_checkpointing_enable()
    out = run.model.train()(input_ids=torch.arange(3, 19)[None])
    modes = [one for one in gc.get_objects() if type(one) is checkpoint._CachedTorchDispatchMode]
    caches = {id(one.storage): one.storage for one in modes}
    kept = sum(len(found) for one in caches.values() for name, found in one.items() if "attention" in str(name))
    del out
    requested = run.plan["arguments"].get("gradient_checkpointing_kwargs") or {}
    return {"asked": "selective" in requested, "kept": kept}
