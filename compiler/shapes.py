"""Shapes of rows: their columns, the methods that train on them, and the columns that a spec names."""

from __future__ import annotations

from xpc.compiler.codes import report
from xpc.compiler.spec import DataSource
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import evolve

SHAPES = {
    "messages": ("messages",),
    "conversations": ("conversations",),
    "prompt_completion": ("prompt", "completion"),
    "preference": ("chosen", "rejected"),
    "text": ("text",),
    "unpaired": ("prompt", "completion", "label"),
    "prompt": ("prompt",),
}
"""The columns of each shape, in the order in which `DataSource.columns` names them; a preference may have its prompt
before them."""

METHOD_SHAPES = {
    "sft": ("messages", "conversations", "prompt_completion", "text"),
    **dict.fromkeys(("dpo", "orpo", "reward"), ("preference",)),
    "kto": ("unpaired", "preference"),
    **dict.fromkeys(("grpo", "rloo"), ("prompt",)),
}
"""The shapes that a method trains on, the usual one first."""

KEPT = ("tools", "chat_template_kwargs")
"""Columns beside the shape's own that the trainer reads as they are."""


def in_words(shape: str) -> str:
    """A shape as a sentence names it."""
    words = {"preference": "preference pairs", "unpaired": "judged completions", "prompt": "prompts alone"}
    return words.get(shape, shape)


def with_prompt(source: DataSource, prompt: str) -> tuple[DataSource, list[Diagnostic]]:
    """The source with its prompt in a column of that name; the other columns keep theirs."""
    need = SHAPES[source.shape]
    if source.shape == "preference":
        return evolve(source, columns=(prompt, *(source.columns or need)[-2:])), []
    if need[0] == "prompt":
        return evolve(source, columns=(prompt, *(source.columns or need)[1:]), context=None), []
    return source, [
        report(
            "XP124",
            f"rows of {source.shape} have no prompt column",
            source.label,
            help="leave `prompt` out, or write a `format` that has one, such as `format = prompt_completion`",
        )
    ]


def wrong_columns(source: DataSource, columns: tuple[object, ...]) -> list[Diagnostic]:
    """The finding where `columns` names another number of columns than the shape has."""
    need = SHAPES.get(source.shape, ())
    given = [name for name in columns if name not in KEPT]
    more = {"preference": 1, "prompt": len(given)}.get(source.shape, 0)  # its prompt; columns that rewards read
    if not need or len(need) <= len(given) <= len(need) + more:
        return []
    listed = ", ".join(need)
    return [
        report(
            "XP124",
            f"rows of {source.shape} have {len(need)} column{'s' * (len(need) > 1)}, and {len(given)} are named",
            source.label,
            help=f"write `columns = [{listed}]` with the dataset's own names, or another `format`",
        )
    ]
