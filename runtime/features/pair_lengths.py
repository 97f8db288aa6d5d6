"""Columns of tokens as the trainers of trl 0.18 to 1.16 name them that have answers to a prompt."""

from typing import Any

from ..core.bundle import Bundle

PROMPTS = ("prompt_ids", "prompt_input_ids")
ANSWERS = (
    "input_ids", "chosen_ids", "rejected_ids", "completion_ids", "chosen_input_ids", "rejected_input_ids",
    "answer_input_ids", "input_ids_chosen", "input_ids_rejected",
)  # fmt: skip


def name_columns(bundle: Bundle, counted: Any) -> None:
    """Has the sequences of both answers counted, each behind its prompt."""
    counted.prompts, counted.answers = PROMPTS, ANSWERS
