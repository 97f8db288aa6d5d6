"""The harness's models and task files (lm-eval 0.4)."""

from typing import Any


def model(quantized: Any, **arguments: Any) -> Any:
    """Its class of transformers models, with the base as it was trained over.

    The harness takes no configuration of quantization but the model's own.
    """
    from lm_eval.models.huggingface import HFLM

    class Model(HFLM):  # type: ignore[misc]
        def _create_model(self, *positional: Any, **kwargs: Any) -> None:
            if quantized is not None:
                kwargs["quantization_config"] = quantized
            super()._create_model(*positional, **kwargs)

    return Model(**arguments)


def task(path: str) -> dict[str, Any]:
    """What a task file says, with the functions that it names."""
    from lm_eval.tasks._yaml_loader import load_yaml

    return dict(load_yaml(path, resolve_func=True))
