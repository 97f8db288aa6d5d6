"""Whether the assistant's tokens can be told from the others, for a run that learns from those alone."""

import re
from typing import Any

from ...core.feature import Bundle, Feature

UNMARKED = "the chat template has no {% generation %} marks, which assistant_only needs, and is none that trl knows; "


class AssistantMasks(Feature):
    """The run learns from the assistant's tokens alone."""

    def before_rows(self, bundle: Bundle, tokenizer: Any) -> list[str]:
        """Whether the chat template marks the assistant's tokens."""
        return missing(tokenizer) if tokenizer is not None and tokenizer.chat_template else []


def missing(tokenizer: Any) -> list[str]:
    """Why they cannot, as trl would find after the model is loaded."""
    template = tokenizer.chat_template
    if re.search(r"\{%-?\s*generation\s*-?%\}", template["default"] if isinstance(template, dict) else template):
        return []
    try:
        from trl.chat_template_utils import get_training_chat_template  # trl 0.18 and 0.24 put no marks in

        get_training_chat_template(tokenizer)
    except (ImportError, ValueError):
        return [UNMARKED + "name one in model"]
    return []
