"""Liger's kernels in the layers of the model."""

from typing import Any

from ..core.bundle import Bundle
from ..core.errors import RunError, first_line
from ..library_internals import liger_kernels


def before_rows(bundle: Bundle, tokenizer: Any) -> list[str]:
    """Why this run cannot have them, before the model is loaded."""
    import transformers

    config = transformers.AutoConfig.from_pretrained(bundle.model_place, **bundle.loading())
    return [one for one in (liger_problem(config.model_type),) if one]


def liger_problem(model_type: str) -> str | None:
    """Why Liger's kernels cannot be put into this family, or None."""
    try:
        from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN
    except ImportError as error:
        return f"liger-kernel cannot be used: {first_line(error)}"
    if model_type not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        return f"Liger has no kernels for the family {model_type!r}; leave liger out"
    return None


def model_loaded(bundle: Bundle, model: Any, tokenizer: Any) -> None:
    """Liger's layer kernels (norm, rope, gated MLP) put into the loaded model; trl 1.16 has a fused loss of its own.

    Raises RunError, where Liger itself only logs, when it does not know the family.
    """
    problem = liger_problem(model.config.model_type)
    if problem:
        raise RunError(problem)
    liger_kernels.put_into(model)
