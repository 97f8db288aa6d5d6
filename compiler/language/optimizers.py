"""The language's optimizers: their names, the packages that implement them, and the settings that each of them reads.

A name has the form `[origin_]algorithm[bits]`. For example, `adamw8bit` is AdamW with 8-bit states. `paged_` keeps the
states in CUDA's paged memory. The prefixes `torchao_`, `galore_`, `apollo_`, `schedule_free_` and `bnb_` name the
library or the algorithm's variant. `_layerwise` at the end updates each parameter as soon as its gradient is ready. The
policy of each stack maps these names to transformers' names (`[optimizers]`), or says why the stack lacks an optimizer
(`[optimizers_lacking]`).

Source: transformers 5.23 `trainer_optimizer.py` and 4.52 `Trainer.get_optimizer_cls_and_kwargs`.
"""

from __future__ import annotations

TORCH = ("adamw", "adamw_torch", "adamw_fused", "adafactor", "adagrad", "muon", "rmsprop", "sgd")
PACKAGES = {
    "bitsandbytes": (
        "adamw8bit", "ademamix", "ademamix8bit", "bnb_rmsprop", "lion", "lion8bit", "paged_adamw", "paged_adamw8bit",
        "paged_ademamix", "paged_ademamix8bit", "paged_lion", "paged_lion8bit", "rmsprop8bit",
    ),
    "torchao": ("torchao_adamw4bit", "torchao_adamw8bit"),
    "galore": (
        "galore_adafactor", "galore_adamw", "galore_adamw8bit", "galore_adamw8bit_layerwise", "galore_adamw_layerwise",
    ),
    "apollo": ("apollo_adamw", "apollo_adamw_layerwise"),
    "lomo": ("adalomo", "lomo"),
    "grokadamw": ("grokadamw",),
    "schedulefree": ("schedule_free_adamw", "schedule_free_radam", "schedule_free_sgd"),
    "optimi": ("stable_adamw",),
}  # fmt: skip
"""Maps a group of a stack's extra requirements, such as `galore`, to the optimizers that its package implements. The
optimizers of torch and transformers need no such group.
"""

METRIC_SCHEDULES = ("reduce_lr_on_plateau", "greedy")
"""Schedules that change the learning rate when a metric of the evaluation stops improving."""

NAMES = (*TORCH, *(name for names in PACKAGES.values() for name in names))

LOW_RANK = (*PACKAGES["galore"], *PACKAGES["apollo"])
"""Optimizers that project the gradients of `targets` to a low rank."""
CPU_OPTIMIZERS = ("adamw", "adamw_torch", "adamw_fused", "lion")
"""Optimizers that accelerate replaces by DeepSpeed's CPU version if the optimizer states are offloaded."""
MADE_BY_RUNTIME = ("muon",)
"""Optimizers that transformers lacks, so that the bundle's runtime creates them. The argument `optim` then names the
stack's AdamW, which trains the weights that Muon cannot train: all weights that are not hidden matrices.
"""
FUSED = ("adalomo", "lomo")
"""Optimizers that update weights during the backward pass, so that the gradients of all weights never exist at the same
time.
"""
LAYERWISE = tuple(name for name in NAMES if name.endswith("_layerwise"))
"""Optimizers that update each parameter in a hook of the backward pass, as soon as the parameter's
gradient is ready.
"""
RESTARTED = (*LAYERWISE, "adalomo", "grokadamw")
"""Optimizers that lose their states when a run resumes. GrokAdamW finds its states by the identity of tensor objects,
and a resumed run has new objects.
"""
UNSAVED = (*LAYERWISE, *FUSED)
"""Optimizers whose states are not saved in checkpoints. For a layerwise optimizer, transformers saves the placeholder
LayerWiseDummyOptimizer, which is empty. AdaLomo keeps its states outside of `state_dict`. LOMO has no states.
"""
SCHEDULE_FREE = PACKAGES["schedulefree"]
WARM_UP = ("schedule_free_adamw", "schedule_free_sgd")
"""Optimizers that warm up the learning rate themselves."""

MOMENTS = {
    "adamw": 2, "adamw_fused": 2, "adamw_torch": 2, "grokadamw": 4, "stable_adamw": 2, "schedule_free_adamw": 2,
    "schedule_free_radam": 2, "ademamix": 3, "lion": 1, "adagrad": 1, "rmsprop": 1, "bnb_rmsprop": 1,
    "schedule_free_sgd": 1, "muon": 1,
}  # fmt: skip
"""Maps an optimizer to the number of states that it keeps for each weight. The 8-bit, 4-bit and paged variants of an
optimizer have the same number. The setting `momentum` adds one state. Muon keeps one state for each weight of a hidden
matrix, and its AdamW keeps two for each other weight.
"""

_MOMENTS = ("betas", "eps", "weight_decay", "clip")
_READS = {
    **dict.fromkeys(("adafactor", "adagrad", "rmsprop", "sgd", "grokadamw"), ("weight_decay", "clip")),
    **dict.fromkeys(("bnb_rmsprop", "rmsprop8bit", "schedule_free_sgd"), ("weight_decay", "clip")),
    **dict.fromkeys(("lion", "lion8bit", "paged_lion", "paged_lion8bit"), ("betas", "weight_decay", "clip")),
    **dict.fromkeys(PACKAGES["galore"], ("clip",)),
    **dict.fromkeys(PACKAGES["apollo"], ("betas", "eps", "clip")),
    **dict.fromkeys(FUSED, ()),
}


def reads(name: str) -> tuple[str, ...]:
    """The settings among `betas`, `eps`, `weight_decay` and `clip` that have an effect with an optimizer.

    An optimizer that updates inside the backward pass ignores `clip`: it never has the complete gradient, whose norm
    `clip` needs.
    """
    found = _READS.get(name, _MOMENTS)
    return tuple(one for one in found if one != "clip") if name in LAYERWISE else found


def package(name: str) -> str | None:
    """The name of the stack's extra requirements, such as "galore", that an optimizer needs. None if torch or
    transformers contains the optimizer.
    """
    return next((extra for extra, names in PACKAGES.items() if name in names), None)
