"""Whether the assistant's tokens can be told from the others, for a run that learns from those alone."""

from typing import Any


def missing(tokenizer: Any) -> list[str]:
    """Why they cannot, as trl would find after the model is loaded."""
    from trl.chat_template_utils import get_training_chat_template, has_generation_markers

    if has_generation_markers(tokenizer.chat_template):
        return []
    try:
        get_training_chat_template(tokenizer)
    except ValueError:
        return [
            "the chat template has no {% generation %} marks, which assistant_only needs, and is none that trl knows; "
            "name one in model"
        ]
    return []
