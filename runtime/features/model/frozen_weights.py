"""Weights that are not trained: which layers and modules of the model are, as the bundle names them."""

import re
from collections.abc import Callable
from typing import Any

from ...core.errors import RunError, say
from ...core.feature import Bundle, Feature


class FrozenWeights(Feature):
    """Weights that are not trained."""

    def trainer_options(self, bundle: Bundle, model: Any, load: Callable[[], Any], options: dict[str, Any]) -> None:
        """Freezes the weights of the model before the trainer makes an optimizer over them."""
        freeze(bundle, model)


def freeze(bundle: Bundle, model: Any) -> None:
    """Lets only the named layers and modules of ``model`` have gradients. Raises RunError where a name finds none.

    A name stands for every module that has it as a part of its path, a pattern for every parameter whose whole name
    begins with it. Weights that are shared by two modules are trained
    where one of them is named. The score of a reward model is new, and always trained.
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
        raise RunError(f"`freeze` names {missing[0]!r}, and this model has no weight there")
    weights = list(model.parameters())
    for weight in weights:
        weight.requires_grad_(id(weight) in trained)
    if _reentrant(bundle):
        model.enable_input_require_grads()  # else no gradient reaches what is recomputed behind frozen embeddings
    size = sum(_size(weight) for weight in weights)
    say(f"{sum(_size(weight) for weight in weights if weight.requires_grad):,} of {size:,} weights are trained")


def _layers(model: Any) -> tuple[str, int]:
    """Where the decoder's layers stand ("model.layers.") and how many they are. Raises RunError."""
    import torch

    count = model.config.get_text_config().num_hidden_layers
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return f"{name}.", count
    raise RunError(f"`freeze` finds no list of {count} layers in {type(model).__name__}")


def _size(weight: Any) -> int:
    """Numbers of a weight; ZeRO-3 keeps the whole shape beside a share of it."""
    return int(getattr(weight, "ds_numel", weight.numel()))


def _reentrant(bundle: Bundle) -> bool:
    for name in ("activation_checkpointing", "gradient_checkpointing"):
        if bundle.arguments.get(name):
            return bool((bundle.arguments.get(f"{name}_kwargs") or {}).get("use_reentrant"))
    return False
