"""What features change of the model: the class that loads it, the type of its weights, its vocabulary."""

from __future__ import annotations

from typing import Any

from ..core.bundle import Bundle


def loader(bundle: Bundle, kind: Any, facts: dict[str, Any], options: dict[str, Any]) -> Any:
    """The class that loads the model, ``kind`` in most runs; adds to what its configuration and it are told."""
    if bundle.uses("reward_model"):
        from . import reward_model

        kind = reward_model.scored(facts)
    if bundle.uses("adapters"):
        from . import adapters

        options |= adapters.base_options(bundle)
    return kind


def settle(bundle: Bundle, model: Any, tokenizer: Any) -> None:
    """What the loaded model needs: the types that the bundle states, and rows for tokens that are new."""
    if bundle.uses("weight_dtypes"):
        from . import weight_dtypes

        weight_dtypes.settle(bundle, model)
    if bundle.uses("added_tokens"):
        from . import added_tokens

        added_tokens.grow(bundle, model, tokenizer)
