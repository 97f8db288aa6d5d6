"""Refuse a config.json that transformers 5 has saved, if transformers 4 would ignore its rotary positions."""

from collections.abc import Mapping
from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature


class NewerConfig(Feature):
    """Hooks for a run with transformers 4, whose model may have been saved by transformers 5."""

    def model_options(self, bundle: Bundle, options: dict[str, Any]) -> None:
        """Raise RunError if loading would give the model other rotary positions than it was saved with."""
        from transformers import AutoConfig

        config = options.get("config") or AutoConfig.from_pretrained(bundle.model_path, **bundle.loading())
        if missing := ignored(config.get_text_config().to_dict()):
            raise RunError(
                f"{bundle.model_path} was saved by transformers 5, and the installed version ignores `rope_parameters` "
                f"in its config.json: name a newer target, or add {written(missing)} to that file"
            )


def ignored(config: Mapping[str, Any]) -> dict[str, object]:
    """What transformers 4 would ignore in ``rope_parameters``, as a dict such as ``{"rope_theta": 1000000.0}``. The
    keys are those under which transformers 4 reads these values. Keys that ``config`` already has are left out.

    ``config`` is a config.json, completed by the defaults of the model's class.
    """
    saved = config.get("rope_parameters")
    if not isinstance(saved, Mapping):
        return {}
    layers = {name: one for name, one in saved.items() if isinstance(one, Mapping)}
    out: dict[str, Any] = {}
    for name, one in (layers or {"full_attention": saved}).items():
        local = name == "sliding_attention"
        base = "rope_local_base_freq" if local and config.get("rope_local_base_freq") is not None else "rope_theta"
        part = "partial_rotary_factor" if config.get("rotary_pct") is None else "rotary_pct"
        for key, value in ((base, one.get("rope_theta")), (part, one.get("partial_rotary_factor"))):
            if value is not None and value != config.get(key, value):
                out.setdefault(key, value)
        if not local and not _is_scaled(config.get("rope_scaling"), one):
            plain = one.get("rope_type", "default") == "default"
            out["rope_scaling"] = None if plain else _scaling(one)
    return out


def _scaling(saved: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in saved.items() if key not in ("rope_theta", "partial_rotary_factor")}


def _is_scaled(stated: object, saved: Mapping[str, object]) -> bool:
    """Whether ``rope_scaling``, which transformers 4 reads, agrees in all of its keys with ``rope_parameters``."""
    if not isinstance(stated, Mapping) or not stated:
        return str(saved.get("rope_type", "default")) == "default"
    both = {"rope_type": stated.get("type"), **stated}
    return all(both.get(key, value) == value for key, value in {"rope_type": "default", **_scaling(saved)}.items())


def written(missing: Mapping[str, object]) -> str:
    """Keys and values of a config.json, as the phrase `"rope_theta": 1000000.0` and `"rotary_pct": 0.4`."""
    import json

    return " and ".join(f"`{json.dumps(key)}: {json.dumps(value)}`" for key, value in missing.items())
