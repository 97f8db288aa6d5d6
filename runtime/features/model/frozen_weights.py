"""Freeze all weights except the layers and modules that the bundle names."""

import re
from collections.abc import Callable
from typing import Any

from ...core.errors import RunError, say
from ...core.feature import Bundle, Feature, Model


class FrozenWeights(Feature):
    """Hooks for a run with frozen weights."""

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Model], options: dict[str, Any]) -> None:
        """Freeze the weights before the trainer creates the optimizer."""
        freeze(bundle, model)


def freeze(bundle: Bundle, model: Model) -> None:
    """Train only the named layers and modules of ``model``. Raises RunError if a name matches nothing.

    A name matches every module with this name in its path; a pattern matches the beginning of a parameter's full name.
    A weight that two modules share is trained if either module is named. The score head of a reward model is new and
    always trained.
    """
    plan = bundle.plan["freeze"]
    assert plan is not None
    home, count = _layers(model)
    last, first = plan["last"] or 0, plan["first"] or 0
    chosen = {*range(min(first, count)), *range(max(0, count - last), count)}
    inside, outside = plan["layer_modules"], list(plan["modules"] or [])
    patterns = {one: re.compile(one) for one in plan["parameters"] or []}
    if bundle.plan["method"]["scores"]:
        outside.append("score")
    trained: set[int] = set()
    found: set[str] = set()
    for name, weight in model.named_parameters(remove_duplicate=False):
        matching = {one for one, pattern in patterns.items() if pattern.match(name)}
        if matching:
            trained.add(id(weight))
            found |= matching
        parts = name.split(".")[:-1]
        targets = outside
        if name.startswith(home):
            parts = name[len(home) :].split(".")[:-1]
            if int(parts.pop(0)) not in chosen:
                continue
            if inside is None:
                trained.add(id(weight))
                continue
            targets = inside
        matched = set(parts) & set(targets)
        if matched:
            trained.add(id(weight))
            found |= matched
    missing = [name for name in [*(inside or []), *outside, *patterns] if name not in found]
    if missing:
        raise RunError(f"`freeze` names {missing[0]!r}, but no weight of this model has that name")
    weights = list(model.parameters())
    for weight in weights:
        weight.requires_grad_(id(weight) in trained)
    if _reentrant(bundle):
        # with reentrant checkpointing, a layer whose input needs no gradient (frozen embeddings) gets no gradient
        model.enable_input_require_grads()
    size = sum(_size(weight) for weight in weights)
    say(f"{sum(_size(weight) for weight in weights if weight.requires_grad):,} of {size:,} weights are trained")


def _layers(model: Model) -> tuple[str, int]:
    """Return a pair: the name prefix of the decoder's layers ("model.layers."), and their number. Raises RunError."""
    import torch

    count = model.config.get_text_config().num_hidden_layers
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return f"{name}.", count
    raise RunError(f"`freeze` finds no list of {count} layers in {type(model).__name__}")


def _size(weight: Any) -> int:
    """The number of elements of a complete weight. If ZeRO-3 has sharded the weight, ``ds_numel`` has this number."""
    return int(getattr(weight, "ds_numel", weight.numel()))


def _reentrant(bundle: Bundle) -> bool:
    for name in ("activation_checkpointing", "gradient_checkpointing"):
        if bundle.arguments.get(name):
            return bool((bundle.arguments.get(f"{name}_kwargs") or {}).get("use_reentrant"))
    return False
