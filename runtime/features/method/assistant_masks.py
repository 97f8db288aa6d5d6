"""Check that the chat template marks the assistant's tokens, for a run that is trained only on them."""

import re
from typing import Any

from ...core.feature import Bundle, Feature

UNMARKED = "the chat template has no {% generation %} marks, which assistant_only needs, and trl does not know it; "


class AssistantMasks(Feature):
    """Hooks for a run that is trained only on the assistant's tokens."""

    def before_rows(self, bundle: Bundle, tokenizer: Any) -> list[str]:
        """Check that the chat template marks the assistant's tokens."""
        return missing(tokenizer) if tokenizer is not None and tokenizer.chat_template else []


def missing(tokenizer: Any) -> list[str]:
    """The finding for a chat template that does not mark the answers. trl itself raises an error only after the model
    is loaded."""
    template = tokenizer.chat_template
    if re.search(r"\{%-?\s*generation\s*-?%\}", template["default"] if isinstance(template, dict) else template):
        return []
    try:
        # trl 1.16 adds the marks to known templates; older versions lack this function
        from trl.chat_template_utils import get_training_chat_template

        get_training_chat_template(tokenizer)
    except (ImportError, ValueError):
        return [UNMARKED + "name one in model"]
    return []
