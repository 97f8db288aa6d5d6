"""Find three problems of a chat template: its output contains the current date or a random value, it changes the order
of the turns, or it does not end a prompt with the right generation prompt (the header with which answers begin).
"""

import random
from collections.abc import Iterator, Mapping
from itertools import pairwise
from traceback import walk_tb
from typing import Any

from .session import Session

DATE = "zQdateqZ"
SPEAKING = ("user", "assistant")
DRAWS = 8
"""A conversation is rendered this many times, each time with another state of the random generator."""


class Clock:
    """Replaces transformers' `datetime`: every date is `DATE`."""

    @classmethod
    def now(cls, *_: object) -> "Clock":
        """Return a clock in place of the current time. Its only method is `strftime`."""
        return cls()

    def strftime(self, _: str) -> str:
        """Return DATE, for any format."""
        return DATE


def raised(error: BaseException) -> bool:
    """Whether a chat template raised the error. A template may raise any exception, such as ZeroDivisionError."""
    from jinja2 import TemplateError

    files = (frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__))
    return isinstance(error, TemplateError) or "<template>" in files


def changing(session: Session, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if the template writes the current date into a row, and another sentence if it writes a random
    value.
    """
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
    except Exception:  # prepare.py reports that the template refuses the row
        return
    finally:
        module.datetime = real
        random.setstate(state)
    if any(DATE in one for one in texts):
        yield "the chat template writes today's date into the row: tomorrow the row has other tokens"
    if len(texts) > 1:
        yield "the chat template writes a random value into the row, so that its tokens differ each time"


def moved(session: Session, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each conversation in which the template changes the order of the user's and the assistant's
    turns. The position of the system prompt does not matter.
    """
    comparison, render = session.core("row_comparison"), session.tokenizer.apply_chat_template
    for messages in session.bundle.row_format().conversations(row):
        marks = comparison.Markers()
        turns, options = getattr(render, "marked", comparison.marked)(messages, marks)
        try:
            text = str(render(turns, tokenize=False, **options))
        except Exception:  # prepare.py reports that the template refuses the row
            continue
        begun = [(text.find(mark), loss) for mark, loss in marks.found if loss.how == "missing"]
        begun = [(at, loss) for at, loss in begun if at >= 0 and loss.kind == "content" and loss.role in SPEAKING]
        for (before, first), (at, loss) in pairwise(begun):
            if at < before and first.turn != loss.turn:
                yield f"the chat template writes turn {loss.turn} ({loss.role}) before turn {first.turn} ({first.role})"
                break


def prompt_end(session: Session) -> tuple[str, bool]:
    """Return a pair: a sentence if the chat template lacks a generation prompt or has a wrong one ("" if it is right),
    and whether a run that generates stops because of it.
    """
    module = session.optional("features.method.generation_prompt")
    return ("", False) if module is None else module.wrong(session.tokenizer)
