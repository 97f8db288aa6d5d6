"""Rotary positions in a config.json that transformers 5 has saved, which transformers 4 ignores."""

from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature


class NewerConfig(Feature):
    """Hooks for a run with transformers 4."""

    def model_options(self, bundle: Bundle, options: dict[str, Any]) -> None:
        """Raises RunError if the model would be loaded with other positions than it was saved with."""
        from transformers import AutoConfig

        config = options.get("config") or AutoConfig.from_pretrained(bundle.model_place, **bundle.loading())
        if wrong := ignored(config):
            raise RunError(
                f"{bundle.model_place} was saved by transformers 5, and this transformers ignores {wrong} in its "
                "config.json: name a newer target, or write `rope_theta` and `rope_scaling` into it"
            )


def ignored(config: Any) -> str | None:
    """The part of ``rope_parameters`` that has no effect on this configuration, or None."""
    saved = getattr(config, "rope_parameters", None)
    if not isinstance(saved, dict):
        return None
    base = saved.get("rope_theta")
    if base is not None and base != getattr(config, "rope_theta", base):
        return f"`rope_theta` {base:g} of `rope_parameters`"
    kind = saved.get("rope_type", "default")
    return f"the scaling {kind} of `rope_parameters`" if kind != "default" and not config.rope_scaling else None
