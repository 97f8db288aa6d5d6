"""Import torchtune's data. Each dataset component, such as `alpaca_dataset`, has a default repository, a row format and
columns.

Source: torchtune 0.6.1, datasets/.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, integer, is_stated, plain, text
from xpc.compiler.importing.torchtune.keys import KEYS
from xpc.compiler.importing.trl import data as corpus
from xpc.compiler.importing.trl import formats
from xpc.compiler.language.methods import METHODS
from xpc.compiler.registry import find_model
from xpc.grammar.package_data import read_table
from xpc.grammar.record import evolve, record

LONGEST = 4096
"""The sequence length, in tokens, for a file without `max_seq_len`. It is long, because torchtune truncates no row of
such a file.
"""


@record
class Rows:
    """A dataset component of torchtune. `shape` is its row format, and `source` is its default repository. The columns
    have torchtune's names.

    `train_on_input` is true if the loss includes prompts, `goes_on` if a text that does not fit in a packed sequence
    continues in the next one.
    """

    shape: str
    columns: Mapping[str, str]
    source: str | None = None
    train_on_input: bool = False
    goes_on: bool = False
    config: str | None = None


ALPACA = {"instruction": "instruction", "input": "input", "output": "output"}


@cache
def components() -> dict[str, Rows]:
    """Maps the name of each of torchtune's dataset components, such as `alpaca_dataset`, to its rows."""
    return {name: Rows(**row) for name, row in read_table(__file__, "datasets.toml").items()}


TEMPLATE = (
    "torchtune puts special tokens of its own tokenizer around each message, and its loss includes those before an "
    "answer; the spec {}"
)


def data(draft: Draft, entries: Entries) -> None:
    """Set the data sources, their row format, the loss mask, packing and the sequence length."""
    listed = entries.get("dataset")
    shapes: list[Rows] = []
    for one in [] if listed is None or draft.sources else listed.items:
        _source(draft, one, shapes)
    formats.in_common(draft)
    if listed is not None and not shapes and draft.sources:
        corpus.everything(draft, listed, "`--data` names another")
    elif not draft.sources:
        draft.warn(listed, "no data is named", "`--data` names it")
    on = draft.value("batch.packing") == "true"
    if draft.method == "sft":
        draft.default("batch.packing", False, "not set: torchtune's default")
    if on:
        if shapes and shapes[0].goes_on:
            why = "torchtune continues a row that does not fit in the next packed sequence"
            draft.put("batch.packing.strategy", "bfd_split", None, why)
        draft.differs("packed", "torchtune packs rows in their order; the spec packs them by length")
    _length(draft, entries, on)


def _length(draft: Draft, entries: Entries, packed: bool) -> None:
    tokenizer = entries.get("tokenizer")
    inside = {} if tokenizer is None else tokenizer.mapping
    draft.note(inside.get("_component_"), "the spec uses the model's own tokenizer")
    template, most = inside.get("prompt_template"), inside.get("max_seq_len")
    if template is not None and template.empty:
        draft.note(template, "null: none")
    elif template is not None:
        draft.drop("prompt_template", "torchtune puts its own text around each turn; the spec uses the "
                      "tokenizer's chat template", template)  # fmt: skip
    if is_stated(most):
        draft.setting("batch.seq", most)
        if not packed:
            draft.differs("max_seq_len", "torchtune ends a truncated row with the end token; the spec does not")
        return
    known = find_model(draft.model)
    length = min(LONGEST, known.context) if known is not None else LONGEST
    draft.put("batch.seq", length, most, "null: torchtune truncates no row")
    draft.differs("max_seq_len", f"torchtune truncates no row; the spec truncates at {length} tokens", most)


def _source(draft: Draft, entry: Entry, shapes: list[Rows]) -> None:
    inside = entry.mapping
    made = inside.get("_component_")
    name = (text(made) or "").rpartition(".")[2] if made is not None else ""
    rows = components().get(name)
    if made is None or rows is None:
        draft.error(made or entry, "a spec has no equivalent of this dataset of torchtune",
                    "`--data` names the rows")  # fmt: skip
        return
    rows = _columns(draft, rows, inside)
    if (METHODS[draft.method].shapes[0] == "preference") != (rows.shape == "preference"):
        draft.error(made, f"{draft.method} does not train on rows of the format {rows.shape}")
        return
    shapes.append(rows)
    _reference(draft, rows, inside, made)
    _loss(draft, rows, inside.get("train_on_input"))
    for key in ("packed", "new_system_prompt"):
        one = inside.get(key)
        if one is not None and one.off:
            draft.note(one, "it is off") if key != "packed" or draft.method != "sft" else draft.setting(
                KEYS["dataset.packed"].setting, one
            )
        elif one is not None:
            draft.setting(KEYS[f"dataset.{key}"].setting, one)
            if key == "new_system_prompt":
                draft.differs(key, "torchtune replaces the rows' system prompts by it; the spec adds it to rows "
                              "without one", one)  # fmt: skip
    _plain(draft, rows, inside)


def _plain(draft: Draft, rows: Rows, inside: Entries) -> None:
    end, across, most = (inside.get(key) for key in ("add_eos", "split_across_pack", "max_seq_len"))
    if end is not None and not boolean(end):
        draft.drop(
            "add_eos", "torchtune writes no end token after a text; the spec writes the tokenizer's end token", end
        )
    elif end is not None:
        draft.note(end, "the spec writes an end token after each text, too")
    if boolean(across) == rows.goes_on:
        draft.note(across, "the component's default")
    elif across is not None:
        draft.error(across, "packing in a spec splits rows of plain text, and never rows with answers")
    if most is not None and most.empty:
        draft.note(most, "null: none")
    elif integer(most) is not None:
        draft.setting("batch.seq", most)
    if rows.shape == "text":
        return
    words = {
        "alpaca": "writes the prompt and the answer without special tokens between them",
        "prompt_completion": "renders them as turns by the tokenizer's chat template",
        "preference": "renders pairs of conversations by the tokenizer's chat template, and joins the texts of "
        "other pairs",
    }.get(rows.shape, "renders them by the tokenizer's chat template")
    draft.differs("tokenizer", TEMPLATE.format(words))


def _columns(draft: Draft, rows: Rows, inside: Entries) -> Rows:
    """The rows of the dataset component, changed by the column names and the conversation style in the file."""
    mapped, column, turns, style = (
        inside.get(key) for key in ("column_map", "column", "conversation_column", "conversation_style")
    )
    given = plain(mapped) if mapped is not None else None
    if mapped is not None and isinstance(given, dict):
        rows = evolve(rows, columns={key: str(given.get(key, usual)) for key, usual in rows.columns.items()})
        for one in mapped.mapping.values():
            draft.mark(one, "mapped", "columns")
    elif mapped is not None:
        draft.note(mapped, "null: the component's own columns")
    if column is not None and rows.shape == "text":
        rows = evolve(rows, columns={"column": text(column) or "text"})
        draft.mark(column, "mapped", "columns")
    if style is not None:
        shape = {"openai": "messages", "sharegpt": "conversations"}.get(text(style) or "")
        if shape is None:
            draft.error(style, "the value must be sharegpt or openai")
        else:
            rows = evolve(rows, shape=shape)
            draft.mark(style, "mapped", f"data {{ format = {shape} }}")
    if turns is not None:
        rows = evolve(rows, columns={"conversations": text(turns) or "conversations"})
        draft.mark(turns, "mapped", "columns")
    return rows


def _reference(draft: Draft, rows: Rows, inside: Entries, made: Entry) -> None:
    """Add a data source: the repository or file in the configuration, or else the component's default repository."""
    location, files, config, split = (inside.get(key) for key in ("source", "data_files", "name", "split"))
    config = inside.get("subset", config)
    if location is None and rows.source is None:
        draft.error(made, "the component needs a `source`")
        return
    if location is not None and text(location) in ("json", "csv", "parquet", "text") and files is not None:
        draft.mark(location, "mapped", "the ending of the file name states the format")
        if len(files.items) != 1:
            draft.error(files, "a spec names one file or folder")
            return
        location = files.items[0]
        draft.mark(files, "mapped", "data")
    elif is_stated(files):
        draft.error(files, "a spec names one file or folder", "write `source: json` for a file")
    name = Entry(made.key, rows.source, made.file, made.line) if location is None else location
    usual = Entry(made.key, rows.config, made.file, made.line) if rows.config is not None else None
    found = corpus.source(draft, name, config or usual, split)
    if found is None:
        return
    own = tuple(rows.columns.values())
    kept = {"alpaca": tuple(ALPACA.values()), "text": ("text",), "messages": ("messages",),
            "conversations": ("conversations",), "preference": ("chosen", "rejected")}.get(rows.shape)  # fmt: skip
    shape = rows.shape if rows.shape != METHODS[draft.method].shapes[0] else ""
    known, columns = find_model(draft.model), () if own == kept else own
    texts = rows.shape == "prompt_completion" or "prompt" in rows.columns
    chat = texts and (known is None or known.chat)
    draft.sources.append(evolve(found, columns=columns, format=shape, chat=chat, location=made))
    if rows.source == "lvwerra/stack-exchange-paired" and location is None:
        draft.differs(
            "dataset", "torchtune reads only the folder data/rl of the repository; the spec reads all (`--data` names "
            "a copy of the folder)", made
        )  # fmt: skip


def _loss(draft: Draft, rows: Rows, entry: Entry | None) -> None:
    """Set whether the loss includes the prompts, from `train_on_input` or else the component's default."""
    prompts_too = boolean(entry) is True if is_stated(entry) else rows.train_on_input
    path = "" if rows.shape == "preference" else formats.mask(rows.shape)
    if path:
        draft.put(path, not prompts_too, entry, "" if entry is not None else "not set: torchtune's default")
    elif entry is not None:
        draft.note(
            entry,
            "the rows have no separate answers"
            if rows.shape == "text"
            else "the prompt of a preference pair cancels out in the loss",
        )
