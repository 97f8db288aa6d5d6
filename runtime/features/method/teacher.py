"""The teacher of a distillation: the frozen model whose probabilities the student learns."""

from collections.abc import Callable
from typing import Any

from ...core import made
from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Model, Tokenizer


class Teacher(Feature):
    """Hooks for a run that learns from a frozen teacher."""

    def before_rows(self, bundle: Bundle, tokenizer: Tokenizer | None) -> list[str]:
        """Check that teacher and student have the same vocabulary."""
        why = None if tokenizer is None else other_tokens(bundle, tokenizer)
        return [] if why is None else [why]

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Model], options: dict[str, Any]) -> None:
        """Load the teacher and pass it to the trainer."""
        options["teacher_model"] = teacher(bundle)


def teacher(bundle: Bundle) -> object:
    """Load the frozen teacher. Raises RunError if it cannot be loaded.

    Custom code and pickles are not allowed for the teacher, even if the spec allows them for the student.
    """
    import torch
    from transformers import AutoModelForCausalLM

    plan = bundle.plan["method"]["teacher"]
    assert plan is not None
    where = bundle.path_of(plan)
    try:
        model, info = AutoModelForCausalLM.from_pretrained(
            where,
            output_loading_info=True,
            revision=plan["revision"] or "main",
            use_safetensors=True,
            attn_implementation=bundle.model["attn_implementation"],
            **{bundle.stack["dtype_keyword"]: getattr(torch, plan["dtype"])},
        )
    except (OSError, ValueError, ImportError) as error:
        raise RunError(f"cannot load the teacher {where}: {str(error).strip().splitlines()[0]}") from error
    made.loaded(model, info, where)
    model.config.use_cache = False
    return model.requires_grad_(False).eval()


def other_tokens(bundle: Bundle, tokenizer: Tokenizer) -> str | None:
    """Describe how the teacher's vocabulary differs from the student's. None if the two are equal."""
    from transformers import AutoTokenizer

    plan = bundle.plan["method"]["teacher"]
    assert plan is not None
    where = bundle.path_of(plan)
    try:
        vocabulary = AutoTokenizer.from_pretrained(where, revision=plan["revision"] or "main").get_vocab()
    except (OSError, ValueError) as error:
        return f"cannot load the tokenizer of the teacher {where}: {str(error).strip().splitlines()[0]}"
    for token, index in tokenizer.get_vocab().items():
        if vocabulary.get(token) != index:
            entry = f"{vocabulary[token]:,}" if token in vocabulary else "no token"
            return f"the teacher {where} has another vocabulary: {token!r} is {entry} there, {index:,} for the student"
    return None
