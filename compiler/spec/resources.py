"""The resources of a run: its model, data and machines, as `resolve` finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xpc.compiler.language.kinds import Amount
from xpc.compiler.registry.types import Gpu, ModelFacts
from xpc.grammar.diagnostic import Label
from xpc.grammar.record import field, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.spec.survey import Survey


@record
class DataSource:
    """One source of data: a hub dataset, a local file or a folder.

    - `columns`: the dataset's columns for the format, in the order of `SHAPES`; `only`: whether the spec states these
      columns
    - `stated`: whether the spec states the format or the prompt's column
    - `found`: the columns of a local file's first row, if it was read
    - `bundled`, `content`: the name and the bytes of the copy in the bundle
    - `keys`: the columns of a Parquet file, with the keys inside them, such as `messages[].role`, each with what its
      values are, such as "a text"
    - `context`: a column whose text is appended to the prompt; `wording`: the name of a format with fixed words around
      prompt and context, such as Alpaca's
    - `chat`: whether texts become turns of a conversation
    - `limit`: the maximum number of rows that are read
    - `share`: the source's part of a mixture, from 0 to 1; `share_label`: where the spec states it
    - `documents`: the part of a .txt file that becomes a row, such as a paragraph
    - `roles`: the roles of the speakers that the spec names
    - `survey`: the counts of a file from an earlier check, if its content was not read again
    - `parts`: the files of a folder, for all its splits
    """

    id: str | None
    path: str | None
    label: Label
    config: str | None = None
    split: str = "train"
    slice: str | None = None
    revision: str | None = None
    shape: str = "messages"
    columns: tuple[str, ...] | None = None
    only: bool = False
    stated: bool = False
    take: Amount | None = None
    share: float | None = None
    share_label: Label | None = field(default=None, repr=False)
    documents: str | None = None
    sha256: str | None = None
    bundled: str | None = None
    content: bytes | None = field(default=None, repr=False)
    found: tuple[str, ...] | None = None
    rows: int | None = None
    keys: Mapping[str, str] | None = field(default=None, repr=False)
    context: str | None = None
    wording: str | None = None
    chat: bool = False
    limit: int | None = None
    roles: tuple[tuple[str, str], ...] = ()
    survey: Survey | None = field(default=None, repr=False)
    parts: tuple[DataSource, ...] = field(default=(), repr=False)

    def of_split(self, split: str) -> tuple[DataSource, ...]:
        """The files of a folder that belong to a split. A source that is not a folder stands for itself."""
        if not self.parts:
            return (self,)
        from xpc.compiler.spec import folders  # imported only here, because only data folders need it

        named = {part.inside(self): part for part in self.parts}
        return tuple(named[name] for name in folders.of_split(tuple(named), split))

    def inside(self, folder: DataSource) -> str:
        """The path of a file relative to its data folder."""
        return (self.path or "")[len((folder.path or "").rstrip("/")) + 1 :]

    @property
    def name(self) -> str:
        """The name of the source in messages: its hub id, or the path of its file or folder."""
        return self.id or self.path or ""

    @property
    def kind(self) -> str:
        """The kind of rows that the trainer gets from this source: conversations (as `messages` or as from/value
        pairs), texts, and so on.
        """
        shape = "messages" if self.shape == "conversations" else self.shape
        return f"{shape} as turns" if self.chat else shape


def kinds(mixture: Sequence[DataSource]) -> tuple[str, ...]:
    """The kinds of rows in the given sources, each once."""
    return tuple(dict.fromkeys(source.kind for source in mixture))


def known_rows(data: Sequence[DataSource]) -> int:
    """The total number of rows in the sources. A source with an unknown number of rows counts as 0."""
    rows = 0
    for source in data:
        known, take = source.rows or 0, source.take
        rows += known if take is None else int(known * take.value if take.unit == "share" else min(known, take.value))
    return rows


@record
class ImageList:
    """A file in the bundle that lists the images in a source's rows with their digests: its name, its bytes, and the
    SHA-256 of these bytes.

    `missing` is the number of image files that do not exist. If xpc does not read the rows of the source, the name is
    empty.
    """

    name: str
    data: bytes = field(repr=False)
    sha256: str
    files: int
    missing: int


@record
class EvalSet:
    """One evaluation set: its name, which the names of its metrics contain, and its sources, whose rows are joined.

    `prompt` is the column with the prompt, if the set's `data` block states it.
    """

    name: str
    label: Label
    sources: tuple[DataSource, ...]
    prompt: str | None = None


@record
class Model:
    """A model: its hub id or local folder, and its architecture if known.

    `chat` tells whether the tokenizer has a chat template; None if this is unknown. For a local model, `template` is
    the text of the chat template, `eos` is the tokenizer's end token, and `vocabulary` has the files with the
    tokenizer's tokens. `config` is the model's config.json; it states the family even if xpc cannot compute the model's
    sizes. `of_run` tells whether the folder is the output of a training run, and `pickled` whether its only weights
    are pickles. `largest_token` is the largest id in tokenizer_config.json.
    """

    label: Label
    id: str | None
    path: str | None
    revision: str | None
    facts: ModelFacts | None
    known_from: str
    chat: bool | None = None
    template: str | None = field(default=None, repr=False)
    eos: str | None = None
    vocabulary: bytes | None = field(default=None, repr=False)
    config: Mapping[str, object] = field(factory=dict, repr=False)
    of_run: bool = False
    pickled: bool = False
    largest_token: int | None = None

    @property
    def model_type(self) -> str | None:
        """The family by transformers' name, or None if it is not known."""
        named = self.config.get("model_type") if self.facts is None else self.facts.model_type
        return named if isinstance(named, str) else None

    @property
    def stored_bits(self) -> int | None:
        """The number of bits of a weight (4 or 8) in a checkpoint of bitsandbytes. None for any other checkpoint."""
        found = self.config.get("quantization_config")
        if isinstance(found, Mapping):
            return 4 if found.get("load_in_4bit") else 8 if found.get("load_in_8bit") else None
        return 4 if not self.config and str(self.id).lower().endswith("-bnb-4bit") else None

    @property
    def location(self) -> str:
        """The folder or hub id from which the model is loaded."""
        return self.path or str(self.id)

    @property
    def name(self) -> str:
        """The model's name in messages: its alias, hub id or folder."""
        alias = self.facts.alias if self.facts is not None and self.known_from == "registry" else None
        return self.path or alias or self.id or ""


@record
class AdapterFolder:
    """The adapter of an earlier run: its folder, its adapter_config.json, the SHA-256 of this file, and the number of
    bits of its base.

    `bits` is None for an unquantized base, and 0 if the base is not known.
    """

    path: str
    config: Mapping[str, object] = field(repr=False)
    sha256: str
    bits: int | None


@record
class Hardware:
    """The machines of a run: `nodes` machines with `processes` processes each. `gpu` is None for a run on CPUs."""

    gpu: Gpu | None
    processes: int
    nodes: int

    @property
    def world(self) -> int:
        """The number of all processes (the world size)."""
        return self.processes * self.nodes
