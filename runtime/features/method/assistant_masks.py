"""Check that the chat template marks the assistant's tokens, for a run that is trained only on them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.feature import Bundle, Feature

UNMARKED = "the chat template has no {% generation %} marks, which assistant_only needs, and trl does not know it; "

MARK = "write {% generation %} and {% endgeneration %} around the assistant's content alone"
LONG = 8
"""Shorter contents may be in another turn by chance."""


class AssistantMasks(Feature):
    """Hooks for a run that is trained only on the assistant's tokens."""

    def before_rows(self, bundle: Bundle, tokenizer: Any) -> list[str]:
        """Check that the chat template marks the assistant's tokens."""
        return missing(tokenizer) if tokenizer is not None and tokenizer.chat_template else []

    def check_first_row(self, bundle: Bundle, name: str, row: Mapping[str, Any], tokenizer: Any) -> list[str]:
        """Check that the template's marks enclose the answers of a row, and not its questions."""
        why = wrong_marks(bundle.row_format().conversations(dict(row)), tokenizer)
        return [] if why is None else [f"{name}: {why}"]


def missing(tokenizer: Any) -> list[str]:
    """The finding for a chat template that does not mark the answers. trl itself raises an error only after the model
    is loaded."""
    if _has_marks(tokenizer):
        return []
    try:
        # trl 1.16 adds the marks to known templates; older versions do not have this function
        from trl.chat_template_utils import get_training_chat_template

        get_training_chat_template(tokenizer)
    except (ImportError, ValueError):
        return [UNMARKED + "name one in model"]
    return []


def _has_marks(tokenizer: Any) -> bool:
    template = tokenizer.chat_template
    return bool(
        re.search(r"\{%-?\s*generation\s*-?%\}", template["default"] if isinstance(template, dict) else template)
    )


def wrong_marks(conversations: Sequence[Sequence[Mapping[str, Any]]], tokenizer: Any) -> str | None:
    """Describe how the template's {% generation %} marks contradict `assistant_only`: they enclose a question, or
    nothing. None if the marks are right, or if the template has none, because trl then adds them. Only questions of at
    least `LONG` characters that no answer repeats are compared.
    """
    if not tokenizer.chat_template or not _has_marks(tokenizer):
        return None
    for turns in conversations:
        try:
            made = tokenizer.apply_chat_template(list(turns), return_dict=True, return_assistant_tokens_mask=True)
        except Exception:  # a template may raise any exception, which the check of the first rows reports
            return None
        masks = made.get("assistant_masks") or ()
        learned = tokenizer.decode([one for one, mask in zip(made["input_ids"], masks, strict=False) if mask])
        spoken = " ".join(str(turn) for turn in turns if turn["role"] == "assistant")
        questions = [str(turn.get("content") or "").strip() for turn in turns if turn["role"] == "user"]
        for text in (one for one in questions if len(one) >= LONG and one in learned and one not in spoken):
            return f"the chat template marks a question as an answer to be learned ({text[:40]!r}); {MARK}"
        if spoken and not learned:
            return f"the chat template marks nothing of the assistant's turns, so nothing is learned; {MARK}"
    return None
