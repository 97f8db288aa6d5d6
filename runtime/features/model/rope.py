"""Scaling of rotary positions (`rope = yarn(factor=4)`), in the model's configuration before it is loaded."""

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Tokenizer, Trainer

DEFAULT = (None, "default")


class Rope(Feature):
    """Hooks for a run that scales the positions of its model."""

    def model_options(self, bundle: Bundle, options: dict[str, object]) -> None:
        """Give the loader a configuration with the scaling. Raises RunError for a model that is scaled already."""
        from transformers import AutoConfig

        config = options.get("config") or AutoConfig.from_pretrained(bundle.model_path, **bundle.loading())
        scale(config, bundle.model["rope"], bundle.model_path)
        options["config"] = config

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Raise the tokenizer's limit to the scaled context. Otherwise the tokenizer would truncate longer rows, and
        vLLM would refuse them.
        """
        lengthen(tokenizer, trainer.model.config.max_position_embeddings, bundle.model["rope"])

    def base_settings(self, bundle: Bundle, trainer: Trainer) -> dict[str, object]:
        """The scaling and the scaled context, as in the configuration of the trained model."""
        config = trainer.model.config
        return {name: getattr(config, name) for name in (*scaled_keys(config), "max_position_embeddings")}

    def made(self, bundle: Bundle, trainer: Trainer) -> Iterator[tuple[str, object, object]]:
        """Compare the scaling that the model's rotary embedding computes with the bundle's."""
        kinds = {
            str(module.rope_type)
            for module in trainer.model.modules()
            if getattr(module, "rope_type", None) is not None and hasattr(module, "inv_freq")
        }
        yield "scaling of positions", [bundle.model["rope"]["rope_type"]], sorted(kinds)


def lengthen(tokenizer: Tokenizer, context: int, rope: Mapping[str, Any]) -> None:
    """Raise ``model_max_length`` to the scaled context, unless this limit is shorter than the original context.
    ``context`` is the context in the configuration; `scale` has already multiplied it (except for dynamic scaling).
    """
    scaled = int(context * rope["factor"]) if rope["rope_type"] == "dynamic" else context
    if scaled / rope["factor"] <= tokenizer.model_max_length < scaled:
        tokenizer.model_max_length = scaled


def scale(config: Any, rope: Mapping[str, Any], place: str) -> None:
    """Write a scaling into a configuration, and multiply its context (`max_position_embeddings`) by `factor`.

    With dynamic scaling, the written context stays the same, because longer contexts are computed from it.
    """
    original = rope["original"] or getattr(config, "max_position_embeddings", None)
    names = scaled_keys(config)
    tables = {name: dict(getattr(config, name, None) or {}) for name in names}
    if (
        original is None
        or not names
        or any(isinstance(one, dict) for found in tables.values() for one in found.values())
    ):
        raise RunError(f"the positions of {place} cannot be scaled: remove `rope` from the spec")
    if any(found.get("rope_type", found.get("type")) not in DEFAULT for found in tables.values()):
        raise RunError(f"the positions of {place} are scaled already, in its config.json: remove `rope` from the spec")
    scaling = {"rope_type": rope["rope_type"], "factor": rope["factor"], **rope["parameters"]}
    if rope["rope_type"] in ("yarn", "llama3"):
        scaling["original_max_position_embeddings"] = original
    if rope["rope_type"] != "dynamic":
        config.max_position_embeddings = int(original * rope["factor"])
    for name, found in tables.items():
        setattr(config, name, {**found, **scaling})


def scaled_keys(config: object) -> list[str]:
    """The attributes of a configuration that contain a scaling: `rope_parameters` or `rope_scaling`."""
    # transformers 5 has `rope_parameters`; its `rope_scaling` is a property that sets `rope_parameters` and warns
    names = [
        name for name in ("rope_parameters", "rope_scaling")
        if hasattr(config, name) and not isinstance(getattr(type(config), name, None), property)
    ]  # fmt: skip
    if not names and hasattr(config, "rope_theta"):  # Gemma and Mistral, for example, lack the key in transformers 4
        return ["rope_scaling"]
    return names
