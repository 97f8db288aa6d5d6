"""Whether the assistant's tokens can be told from the others, for a run that learns from those alone."""

import re
from typing import Any

UNMARKED = "the chat template has no {% generation %} marks, which assistant_only needs, and is none that trl knows; "


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
