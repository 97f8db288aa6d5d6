"""The types of the part `data` of trainer_args.json: where the rows come from, and how they are read."""

from typing import NotRequired, TypedDict


class Rows(TypedDict):
    """A number of rows, or a fraction of all rows."""

    rows: NotRequired[int]
    fraction: NotRequired[float]


class File(TypedDict):
    """A file of a data folder: its name, and its copy in the bundle."""

    path: str
    bundled: str | None
    sha256: str | None


class Source(TypedDict):
    """A source of data: a hub id, or a local file or folder. `columns` are in the order of the row format.

    `kind` is the row format; it is set only if the run mixes several formats. `documents` says what one row of a .txt
    file is: a "paragraph", the "file", or, if the key is missing, a line. `tokens` is set for rows of token ids: the
    name of the column that says which tokens are learned ("labels" or "completion_mask"), or "" if all are learned.
    `images` is the bundle's file that lists the images of the rows (null if compiling did not read the rows).
    """

    id: str | None
    config: str | None
    split: str
    slice: str | None
    revision: str | None
    path: str | None
    bundled: str | None
    sha256: str | None
    files: list[File] | None
    shape: str
    columns: list[str] | None
    only: bool
    context: str | None
    wording: str | None
    take: Rows | None
    limit: NotRequired[int | None]
    share: NotRequired[float]
    documents: NotRequired[str]
    kind: NotRequired[str]
    tokens: NotRequired[str]
    images: NotRequired[str | None]
    images_sha256: NotRequired[str | None]


class EvaluationSet(TypedDict):
    """Rows for evaluation only."""

    name: str
    sources: list[Source]


class Evaluation(TypedDict):
    """The evaluation sets. With `named`, each set has metrics of its own."""

    named: bool
    sets: list[EvaluationSet]


class Streaming(TypedDict):
    """The settings for rows that are read while the run trains."""

    shuffle_buffer: int | None
    """The next row is drawn at random from a buffer with this many rows. None keeps the stored order."""


class Words(TypedDict):
    """Settings of the data that few runs have.

    `prompt_template` builds a prompt from a row's columns; `system_column` is the column with system prompts; `roles`
    maps names of speakers to roles; `exhausted` is "stop" if a mixture ends as soon as one source has no more rows;
    `omit` lists the parts of rows that the chat template may omit; `long` is "chunk" if long texts are split;
    `max_pixels` is the largest number of pixels of an image.
    """

    prompt_template: NotRequired[str]
    system_column: NotRequired[str]
    roles: NotRequired[dict[str, str]]
    exhausted: NotRequired[str]
    omit: NotRequired[list[str]]
    long: NotRequired[str]
    streaming: NotRequired[Streaming]
    max_pixels: NotRequired[int]


class Data(Words):
    """The data, and how its rows are read, filtered, shuffled and split."""

    sources: list[Source]
    seed: int
    shuffle: bool
    holdout: Rows | None
    workers: int | None
    system: str | None
    max_prompt: int | None
    unique: bool
    min_tokens: int | None
    max_tokens: NotRequired[int | None]
    eval_split: str | None
    evaluation: Evaluation | None
