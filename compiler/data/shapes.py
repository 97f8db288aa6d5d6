"""The formats of rows (shapes), such as preference pairs. Each has default columns, and a spec may name other columns.
Each method lists the formats that it can be trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.language.codes import Problems, report
from xpc.compiler.spec.resources import DataSource
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import evolve

IMAGES = "images"
"""The format of conversations with images. Only models that read images can be trained on such rows."""
IMAGE_PAIRS = "image_preference"
"""The format of preference pairs whose prompts contain images. Only models that read images can be trained on such
rows.
"""
WITH_IMAGES = (IMAGES, IMAGE_PAIRS)

SHAPES = {
    IMAGES: ("messages", "images"),
    IMAGE_PAIRS: ("prompt", "chosen", "rejected", "images"),
    "messages": ("messages",),
    "conversations": ("conversations",),
    "prompt_completion": ("prompt", "completion"),
    "preference": ("chosen", "rejected"),
    "text": ("text",),
    "tokens": ("input_ids",),
    "unpaired": ("prompt", "completion", "label"),
    "prompt": ("prompt",),
}
"""Maps each format to its columns, in the order of `DataSource.columns`. Preference pairs may have a prompt column in
front of these columns.
"""

ALPACA = ("instruction", "output")
"""The required columns of Alpaca's rows. A published prompt template joins these columns, and the optional column
`input`, to one text.
"""
INPUT = "input"

TOKEN_MASKS = ("completion_mask", "assistant_masks", "attention_mask")
"""Columns of tokenized rows that contain a mask. In most masks, 1 marks a token that counts in the loss; in
`attention_mask`, it marks a token that is not padding.
"""

KEPT = ("tools", "chat_template_kwargs")
"""Columns that the trainer reads if they exist, in addition to the columns of the format."""


def of_text(shapes: tuple[str, ...]) -> tuple[str, ...]:
    """The row formats in `shapes` whose rows have no images."""
    return tuple(one for one in shapes if one not in WITH_IMAGES)


def of_count(shapes: tuple[str, ...], count: int) -> str | None:
    """The format among `shapes` that has `count` columns; preference pairs have three: prompt, chosen and rejected.
    None if no format or several formats have `count` columns.
    """
    text = of_text(shapes)
    fitting = [one for one in text if count == (3 if one == "preference" else len(SHAPES[one]))]
    return fitting[0] if len(fitting) == 1 else None


def token_columns(names: Sequence[str]) -> dict[str, str]:
    """Map the parts of tokenized rows (`input_ids`, masks, `labels`) to the columns `names` of the dataset. The first
    column contains the ids. Masks are recognized by their names. Any other column contains the labels.
    """
    others = {name if name in TOKEN_MASKS else "labels": name for name in names[1:]}
    return {"input_ids": names[0], **others}


def columns_of(
    source: DataSource, shape: str | None, columns: tuple[str, ...] | None, prompt: str | None, context: str | None
) -> tuple[DataSource, list[Diagnostic]]:
    """Return a pair: a copy of the source, with the names that the spec gives to the columns of its format; and
    findings.
    """
    problems = Problems()
    if source.shape == "tokens" and source.columns is None:
        found = [name for name in ("labels", *TOKEN_MASKS) if name in (source.found or ())]
        source = evolve(source, columns=(*SHAPES["tokens"], *found)) if source.found is not None else source
    if shape == "alpaca" or (shape is None and (source.columns, source.context) == (ALPACA, INPUT)):
        source = as_alpaca(source, (ALPACA[0], INPUT, ALPACA[1]))
    if columns is not None:
        problems += wrong_columns(source, columns)
        source = evolve(source, columns=columns, only=True)
        if source.wording is not None and len(columns) in (2, 3):
            source = as_alpaca(source, columns)
    elif prompt is not None:
        source, wrong = with_prompt(source, prompt)
        problems += wrong
    if context is not None:
        source, wrong = with_context(source, context)
        problems += wrong
    return source, problems


def prompt_first(source: DataSource, columns: tuple[str, ...], prompt: str) -> tuple[tuple[str, ...], list[Diagnostic]]:
    """Put the column `prompt` in front of the columns that the spec names, unless it is among them. Returns a pair: the
    columns, and the findings. If the format has no place for one more column, this is reported.
    """
    answers = [name for name in columns if name not in KEPT]
    if prompt in columns:
        return columns, []
    if source.shape == "prompt" or (source.shape == "preference" and len(answers) == 2):
        return (prompt, *columns), []
    message = f"`columns` already names every column of {in_words(source.shape)}, so `prompt` is not read"
    return columns, [
        report("XP124", message, source.label, help="leave `prompt` out, or put its column into `columns`")
    ]


def as_alpaca(source: DataSource, columns: tuple[str, ...]) -> DataSource:
    """The source with the columns of Alpaca. If `columns` has two names, they are instruction and output; if it has
    three, they are instruction, input and output.
    """
    prompt, context, answer = columns if len(columns) == 3 else (*columns[:1], None, *columns[1:])
    return evolve(source, shape="prompt_completion", columns=(prompt, answer), context=context, wording="alpaca")


def as_chat(source: DataSource) -> DataSource:
    """Return the source with `chat` turned on: its prompts and answers become turns of a chat. A source without a
    separate prompt is returned unchanged.
    """
    if source.shape not in ("prompt_completion", "preference", "unpaired"):
        return source
    return evolve(source, chat=True, parts=tuple(evolve(part, chat=True) for part in source.parts))


def with_context(source: DataSource, context: str) -> tuple[DataSource, list[Diagnostic]]:
    """Return a pair: the source with the column `context`, whose text is appended to the prompt; and a finding if the
    source's format has no prompt column.
    """
    columns = source.found or source.columns or ("prompt",)
    named = len(source.columns or ()) == 3 or "prompt" in columns
    prompted = SHAPES[source.shape][0] == "prompt" and source.shape not in WITH_IMAGES
    if prompted or (source.shape == "preference" and named):
        return evolve(source, context=context), []
    message = f"rows of {source.shape} have no prompt column that a context could follow"
    help = "leave `context` out, or name the prompt's column: `prompt = question`"
    return source, [report("XP124", message, source.label, help=help)]


def in_words(shape: str) -> str:
    """The words for a format in messages. For example, `preference` is "preference pairs"."""
    words = {
        "preference": "preference pairs",
        "unpaired": "judged completions",
        "prompt": "prompts alone",
        "tokens": "tokenized rows",
        IMAGES: "conversations with images",
        IMAGE_PAIRS: "preference pairs with images",
    }
    return words.get(shape, shape)


def with_prompt(source: DataSource, prompt: str) -> tuple[DataSource, list[Diagnostic]]:
    """Return a pair: a copy of the source whose prompt column is `prompt`, and a finding if the source's format has no
    prompt column.
    """
    need = SHAPES[source.shape]
    if source.shape == "preference":
        return evolve(source, columns=(prompt, *(source.columns or need)[-2:])), []
    if need[0] == "prompt":
        context = source.context if source.wording else None
        return evolve(source, columns=(prompt, *(source.columns or need)[1:]), context=context), []
    help = "leave `prompt` out, or write a `format` that has one, such as `format = prompt_completion`"
    return source, [report("XP124", f"rows of {source.shape} have no prompt column", source.label, help=help)]


def wrong_columns(source: DataSource, columns: tuple[object, ...]) -> list[Diagnostic]:
    """Return a list with a finding if the number of names in `columns` is not the number of columns of the format.
    Otherwise the list is empty.
    """
    need = SHAPES.get(source.shape, ())
    given = [name for name in columns if name not in KEPT]
    if source.wording is not None:
        return [] if len(given) in (2, 3) else [_not_alpaca(source, len(given))]
    # some columns are optional: the prompt of a preference pair, columns that rewards read, and labels and masks of
    # tokens
    more = {"preference": 1, "prompt": len(given), "tokens": 4}.get(source.shape, 0)
    if source.shape == "tokens" and len(token_columns([str(name) for name in given])) != len(given):
        # a name that is not the name of a mask stands for the labels, but `columns` has several such names
        more = 0
    # rows with labels may lack a prompt column: the last turn of each conversation is then the answer that the label
    # rates
    less = source.shape == "unpaired"
    if not need or len(need) - less <= len(given) <= len(need) + more:
        return []
    listed = ", ".join((*need, "labels") if source.shape == "tokens" else need)
    message = f"rows of {source.shape} have {len(need)} column{'s' * (len(need) > 1)}, but `columns` names {len(given)}"
    help = f"write `columns = [{listed}]` with the dataset's own names, or another `format`"
    return [report("XP124", message, source.label, help=help)]


def _not_alpaca(source: DataSource, given: int) -> Diagnostic:
    message = f"rows of alpaca have an instruction, perhaps an input, and an output, and {given} columns are named"
    help = "write `columns = [instruction, input, output]` with the dataset's own names, or another `format`"
    return report("XP124", message, source.label, help=help)
