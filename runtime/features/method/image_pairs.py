"""Preference pairs with images: a prompt with `<image>` in place of each image, and two answers of text."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...core import rows
from ...core.errors import RunError
from ...core.feature import Bundle, Source
from ...core.rows import RowFormat, name, with_system
from ..rows import prompts
from ..rows.images import PLACE, Images, images_of, placed, plain, refuse_kept

SHAPE = "image_preference"
PARTS = ("prompt", "chosen", "rejected", "images")
"""The columns of this format. A source in the spec names the columns of its dataset in the same order."""


def columns(source: Source, present: Sequence[str]) -> dict[str, str]:
    """For each part of a pair, the dataset's column: `{"prompt": "question", ...}`; ``present`` are all its columns."""
    if source["shape"] != SHAPE:
        return prompts.columns(source, present)
    return dict(zip(PARTS, source["columns"] or PARTS, strict=True))


def to_row(source: Source, row: Mapping[str, Any], index: int, system: str | None = None, **how: Any) -> dict[str, Any]:
    """Convert a stored row to ``prompt`` (messages with `<image>` at each image's place), both answers, and ``images``.

    A prompt may be a text or a conversation. An answer may be a text, or messages of which the first is the
    assistant's. A prompt without `<image>` gets all images before its first question. Answers have no images, because
    TRL's collator reads only the prompt's images. Raises RunError with the row's number (from 0) for any other row.
    """
    if source["shape"] != SHAPE:
        return prompts.to_row(source, row, index, system, **how)
    where, used = f"{name(source)}, row {index}", columns(source, list(row))
    refuse_kept(source, row, where)
    turns = [plain(turn, where) for turn in with_system(prompts.question(row[used["prompt"]], where), system)]
    images = images_of(row[used["images"]])
    answers = {part: _answer(row[used[part]], part, where) for part in ("chosen", "rejected")}
    return {"prompt": placed(turns, len(images), where), **answers, "images": images}


def _answer(value: object, part: str, where: str) -> list[dict[str, str]]:
    turns = [plain(turn, where) for turn in prompts.answer(value, where)]
    if turns[0]["role"] != "assistant":
        raise RunError(f"{where}: the {part} answer begins with a turn of the {turns[0]['role']}; leave the prompt out")
    if any(PLACE in turn["content"] for turn in turns):
        raise RunError(f"{where}: the {part} answer contains {PLACE}, and images are read in the prompt only")
    return turns


FORMAT = RowFormat(columns, rows.dropped, prompts.conversations, to_row)


class ImagePairs(Images):
    """Hooks for a run on preference pairs with images."""

    talks = ("prompt", "chosen", "rejected")

    def row_format(self, bundle: Bundle) -> RowFormat:
        """The format of pairs with images."""
        return FORMAT
