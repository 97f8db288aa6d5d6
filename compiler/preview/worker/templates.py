"""Findings about the chat template that are not about one row: what it writes changes, or its prompts have no end."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

from .session import Session

DATE = "zQdateqZ"
DRAWS = 8
"""How often a conversation is rendered, each time with another state of the random generator."""


class Clock:
    """Replaces transformers' `datetime`: every date is `DATE`."""

    @classmethod
    def now(cls, *_: object) -> "Clock":
        """The date of today."""
        return cls()

    def strftime(self, _: str) -> str:
        """The date as text."""
        return DATE


def changing(session: Session, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if the template writes the current date into a row, and one if it writes a random value."""
    turns = next(iter(session.bundle.row_format().conversations(row)), None)
    if turns is None:
        return
    from transformers.utils import chat_template_utils as module

    state, real = random.getstate(), module.datetime
    try:
        module.datetime = Clock
        texts = set[str]()
        for seed in range(DRAWS):
            random.seed(seed)
            texts.add(str(session.tokenizer.apply_chat_template(turns, tokenize=False)))
    except Exception:  # a template may raise any exception, which is reported elsewhere
        return
    finally:
        module.datetime = real
        random.setstate(state)
    if any(DATE in one for one in texts):
        yield "the chat template writes the date of today into the row: tomorrow the row has other tokens"
    if len(texts) > 1:
        yield "the chat template writes a random value into the row: each time the row has other tokens"


def prompt_end(session: Session) -> tuple[str, bool]:
    """A sentence about prompts that do not end with the beginning of an answer, and whether it stops the run."""
    module = session.optional("features.method.generation_prompt")
    return ("", False) if module is None else module.wrong(session.tokenizer)
