"""The row formats of a draft's training rows, and the settings that limit the loss to the answers in such rows."""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.language.methods import METHODS
from xpc.grammar.record import evolve


def of_rows(draft: Draft) -> tuple[str, ...]:
    """The row formats of all sources, without repetitions. A source without a format has the format of the `data`
    block.
    """
    common = draft.settings["data.format"].text if draft.has("data.format") else METHODS[draft.method].shapes[0]
    return tuple(dict.fromkeys(one.format or common for one in draft.sources)) or (common,)


def in_common(draft: Draft) -> None:
    """Move each setting with the same value in all sources to the `data` block."""
    turned = [one for one in draft.sources if one.chat]
    if turned and all(one.chat or one.format not in ("alpaca", "prompt_completion") for one in draft.sources):
        draft.put("data.chat", True, turned[0].location)
        draft.sources = [evolve(one, chat=False) for one in draft.sources]
    if len(of_rows(draft)) == 1:
        for one in draft.sources:
            if one.format:
                draft.put("data.format", one.format, one.location)
        draft.sources = [evolve(one, format="") for one in draft.sources]
    if len({one.context for one in draft.sources}) == 1:
        for one in draft.sources:
            if one.context is not None:
                draft.put("data.context", one.context, one.location)
        draft.sources = [evolve(one, context=None) for one in draft.sources]


def masks(draft: Draft) -> tuple[str, ...]:
    """The settings that limit sft's loss to the answers, for all row formats with answers."""
    return tuple(dict.fromkeys(path for one in of_rows(draft) if (path := mask(one))))


def mask(shape: str) -> str:
    """The setting that limits the loss to answers, for rows of the format `shape`: `method.completion_only` or
    `method.assistant_only`. "" for plain texts and tokenized rows.
    """
    of = {"prompt_completion": "method.completion_only", "alpaca": "method.completion_only", "text": "", "tokens": ""}
    return of.get(shape, "method.assistant_only")
