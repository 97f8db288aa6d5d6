"""Rules about the rows of local files and their number (XP551, XP553 to XP556)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil

from xpc.compiler.data import rows
from xpc.compiler.data.shapes import KEPT, SHAPES, WITH_IMAGES
from xpc.compiler.files.workspace import DATA_FORMATS, HEAD
from xpc.compiler.language.kinds import Amount
from xpc.compiler.registry import multimodal
from xpc.compiler.rules.core.conditions import any_of, counted_rows, written
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.data.roles import listed
from xpc.compiler.rules.data.structure import have
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import Survey

TURNS = ("messages", "conversations")
SPEAKER = re.compile("`([^`]+)` is")
"""Matches the message about a row with an unknown speaker: "`narrator` is no known speaker"."""
WHEN = any_of(counted_rows, written("data.holdout"))


@rule("XP551", "split-of-a-file")
def split_of_a_file(spec: Spec) -> Iterator[Finding]:
    """`eval.split` needs a dataset with splits: a local file is a single split, even if it is called `test.jsonl`.

    Why it is bad: the evaluation would read the training rows again.

    Without this rule: the evaluation silently measures the training loss.

    Source: the runtime's `sources.py`; `datasets.load_dataset(data_files=...)` returns a single split, `train`.
    """
    if spec.get("eval.split") is None:
        return
    for source in spec.data:
        if source.path is not None and source.path.lower().endswith(DATA_FORMATS):
            yield Finding(
                spec.location("eval.split", "a split of a file"),
                f"`{source.name[:80]}` is one file without splits: evaluation would read the training rows",
                "write `data(holdout=5%)` instead, or name other rows by `eval(data=FILE)`, or a folder with splits",
                (source.label,),
            )
            return


@rule("XP553", "column-not-there")
def column_not_there(spec: Spec) -> Iterator[Finding]:
    """A local file must have the columns that its format needs, such as `prompt` and `completion`, or the columns that
    `columns` names. The first row may lack a column if a later row has it.

    Why it is bad: rows that lack a column of their format cannot be read.

    Without this rule: KeyError (`'text'`, `'chosen'`) in a tokenizing worker.

    Source: datasets; confirmed by running it.
    """
    for source in spec.files:
        found = rows.survey(source)
        if found is None or not found.rows or (source.found is None and "data" in spec.wrong):
            continue  # the rule XP124 reports columns that fit no known format
        # `source.found` is read from the beginning of the file; if the first row is longer than this beginning, only
        # the survey has the columns
        there = source.found or found.columns
        context = () if source.context is None or source.wording is not None else (source.context,)
        for name in (*rows.columns(source), *context):
            if name in there or name in found.columns:
                continue
            yield Finding(
                source.label,
                f"`{source.name[:80]}` has no column `{name}`",
                (found.rows == 1 and _within(source, there))
                or f"the file has {', '.join(there[:8])}; name its columns with `columns`, or write another `format`",
                (spec.label("data.format", "the shape"),),
            )
            break


def _within(source: DataSource, columns: tuple[str, ...]) -> str:
    """The help for a JSON file that is one object with the rows in a list, such as `{"data": [...]}`. "" for any other
    file.
    """
    if source.content is None:
        return ""
    # imported only here, because only a wrong spec needs it
    from xpc.compiler.suggest.likely_columns import rows_within

    return rows_within(source.name, columns, source.content[:HEAD])


@rule("XP554", "row-of-another-shape")
def row_of_another_shape(spec: Spec) -> Iterator[Finding]:
    """Each row must have the form that its format requires, such as a list of turns for `messages`. The speaker of each
    turn must be known, a text must be a string, and `tools` must be a list of objects with a name, or the JSON text of
    such a list. All rows of a local file are checked; of a Parquet file, the types of its columns.

    Why it is bad: one wrong row makes the run fail.

    Without this rule: the run fails when it converts the first wrong row.

    Source: the runtime's `sources.py`.
    """
    for source in spec.files:
        found = rows.survey(source)
        if found is None and (why := rows.wrong_cells(source)) is not None and source.shape in spec.method.shapes:
            message = f"the columns of `{source.name[:80]}` are not those of {source.shape}: {why}"
            yield Finding(source.label, message, "convert the column, or name other columns")
        if found is None or rows.lacks_columns(source):
            continue  # the rule XP553 reports the missing column
        if source.found is None and "data" in spec.wrong:
            continue  # the rule XP124 reports columns that fit no known format
        if source.shape not in spec.method.shapes:
            continue  # the rule XP503 reports a shape that the method cannot train on
        if found.wrong is None:
            yield from _odd_tools(source, found)
            continue
        yield Finding(
            source.label,
            f"row {found.wrong[0]} of `{source.name[:80]}` is not a row of {source.shape}: {found.wrong[1]}",
            _other_shape(source, found),
        )


def _odd_tools(source: DataSource, found: Survey) -> Iterator[Finding]:
    one = found.tallies.get("odd_tools")
    read = not source.only or "tools" in (source.columns or ())
    if one is not None and read and rows.conversational(source):
        yield Finding(
            source.label,
            f"row {one.first} (counted from 0) of `{source.name[:80]}` has tools that are not a list of objects with a "
            "name",
            'write a list, such as `[{"name": "add", "parameters": {}}]`',
        )


def _other_shape(source: DataSource, found: Survey) -> str:
    """The help for a row whose shape is not that of the format."""
    assert found.wrong is not None
    why = found.wrong[1]
    if why.endswith("` is empty"):
        csv = "; in a CSV file, a cell such as `NA` or `None` is read as empty; in JSON Lines, such a text is kept"
        kept = csv if (source.path or "").lower().endswith(".csv") else ""
        return f"give the row a value there, or delete the row (rows are counted from 0){kept}"
    if why.startswith("the row has no `"):
        return "rename the key in the file, or delete the row (rows are counted from 0)"
    if why.endswith("` is not a list of messages"):
        return "write a list of turns there instead of a text; a list that is encoded as JSON text is not decoded"
    if "a label is true or false" in why:
        return "write true or false into this column of every row"
    if why.endswith("is no known speaker") and (who := SPEAKER.match(why)):
        name = listed([who[1]])
        return f"state the role of {name}: `data(user_roles=[{name}])`, or `assistant_roles`, or `tool_roles`"
    other = next((one for one in TURNS if why.endswith(f"belongs to `format = {one}`")), None)
    if other is not None and source.shape in TURNS:
        names = [*rows.columns(source), *(name for name in KEPT if name in found.columns)]
        return f"write `data(format={other}, columns=[{', '.join(names)}])`"
    return "fix the row (rows are counted from 0), or name another `format`"


@rule("XP555", "more-rows-than-there-are")
def more_rows(spec: Spec) -> Iterator[Finding]:
    """`take` and `holdout` cannot be larger than the number of rows, and at least one row must be left to train on. xpc
    counts the rows of a local file, and knows those of a registered dataset.

    Why it is bad: the run has nothing to train on, or fewer rows than the spec states.

    Without this rule: the run fails only after it has converted every row.

    Source: the runtime's `data.py`; datasets `train_test_split`.
    """
    total: int | None = 0
    trained = set(map(id, spec.data))
    for source in spec.sources:
        taken = there = rows.count(source)
        if there is not None and source.take is not None:
            share = source.take.unit == "share"
            taken = int(there * source.take.value) if share else int(source.take.value)
            if taken > there or taken == 0:
                less = f"`take` leaves no row: {100 * source.take.value:g}% of {there:,} rows is less than one"
                yield Finding(
                    source.label,
                    less if share else f"`take` asks for {taken:,} rows, but there are only {there:,}",
                    "leave `take` out, or write a larger share"
                    if share
                    else f"leave `take` out, or take {there:,} at most",
                    severity=None if source.path is not None else "warning",
                )
                taken = None
        if id(source) in trained:
            total = None if total is None or taken is None else total + taken
    holdout = spec.get("data.holdout")
    if not isinstance(holdout, Amount) or spec.by_share:  # XP540 checks the holdout of a mixture with shares
        return
    held = holdout.value if holdout.unit == "count" or total is None else ceil(holdout.value * total)
    nothing, rest = held == 0, (holdout.unit == "share" and holdout.value >= 1) or (total and held >= total)
    if nothing or rest:
        certain = total is None or all(source.path is not None for source in spec.data)
        # a holdout of 100 % or more is wrong, whatever the number of rows is
        certain = certain or (holdout.unit == "share" and holdout.value >= 1)
        yield Finding(
            spec.location("data.holdout", "" if total is None else f"{held:,} of {total:,} rows"),
            "the holdout has no rows" if nothing else "the holdout leaves nothing to train on",
            "write a smaller `holdout`, such as `holdout = 5%`"
            if held and total != 1
            else f"leave `holdout` out: {'one row cannot be divided' if held else 'no row is held out'}",
            severity=None if nothing or certain else "warning",
        )


MEDIA = ("image", "images", "video", "videos", "audio", "audios")
"""Names of columns that TRL's and LLaMA-Factory's data use for images, videos and sound."""


@rule("XP556", "images-not-read")
def images_not_read(spec: Spec) -> Iterator[Finding]:
    """A model that reads only text cannot be trained on a file with a column of images, videos or sound, unless
    `columns` states which text columns to train on. A model that reads images (Qwen2.5-VL) may have the column
    `images`, but no column of videos or sound. A text with `<image>`, `<video>` or `<audio>` is a warning if the file
    has no column of images, videos or sound. Another rule (XP554) reports images inside messages.

    Why it is bad: the model would be trained without the images or sounds.

    Without this rule: trl raises ValueError in the trainer's constructor, after the model is loaded.

    Source: trl 1.16 `sft_trainer.py`.
    """
    for source in spec.files:
        media = next((name for name in source.found or () if name in MEDIA), None)
        if spec.reads_images:  # the rule XP214 reports other shapes for models that read images
            others = MEDIA[2:] if source.shape in WITH_IMAGES else ()
            media = next((name for name in source.found or () if name in others), None)
        # the rule XP130 refuses models that read images or sound
        refused = media is not None and not spec.reads_images and multimodal(spec.model.id or "")
        if media is not None and not source.only and not refused:
            every = source.columns or SHAPES[source.shape]
            read = every if spec.reads_images else [one for one in every if one not in MEDIA]
            text = ", ".join(read)
            yield Finding(
                source.label,
                f"`{source.name[:80]}` has a column `{media}`, and "
                + ("the model reads only images" if spec.reads_images else f"`{spec.model.name[:80]}` reads only text"),
                f"write `columns = [{text}]` in `data` to train without it",
            )
            continue
        found = rows.valid_survey(source)
        location = None if found is None else found.tallies.get("place")
        if found is not None and location is not None:
            yield Finding(
                source.label,
                f"{have(location, found, source)} `<image>`, `<video>` or `<audio>` in a text, which "
                "is learned as text",
                "remove such marks from the texts, or leave these rows out of the data",
                severity="warning",
            )
