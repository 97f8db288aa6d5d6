"""Set a script's data: the datasets, and the row format and the used rows of each."""

from __future__ import annotations

import ast
import re

from xpc.compiler.importing import mixture
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.draft import Source as Written
from xpc.compiler.importing.python import evaluation, program, rows, shapes, token_rows
from xpc.compiler.importing.python.chain import OPENED, Chain, chain_of
from xpc.compiler.importing.python.data import Data, understood
from xpc.compiler.importing.python.entries import Entries
from xpc.compiler.importing.python.interpreter.functions import is_library
from xpc.compiler.importing.python.interpreter.machine import Machine
from xpc.compiler.importing.python.interpreter.values import (
    Argument,
    Class,
    Column,
    Function,
    Instance,
    Name,
    Object,
    Text,
    Unknown,
)
from xpc.compiler.importing.python.sources import KINDS, refuse_arrow, source_of
from xpc.compiler.importing.text.entries import Entry
from xpc.compiler.language.methods import METHODS

COLLATORS = (
    "DataCollatorForLanguageModeling", "DataCollatorForSeq2Seq", "DataCollatorWithPadding",
    "DPODataCollatorWithPadding", "default_data_collator", "RewardDataCollatorWithPadding",
)  # fmt: skip
NO_ROWS = re.compile(
    r"state|metric|config|result|report|manifest|summary|args|card|stats|schema|eval|test", re.IGNORECASE
)
"""Matches the names of files that a training script opens, but that contain no training rows, such as `metrics.json`.
"""
ROWS = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt")
"""Endings of files that may contain training rows."""
ONCE = "map the rows once, save them, and name this file"


def write(draft: Draft, machine: Machine, trainer: Object, entries: Entries, prompt: str | None = None) -> Data | None:
    """Set the data sources, the row format, the held-out rows and the evaluation data. `prompt` is the column that
    `--prompt` names.

    Returns the interpreted operations on the data (of several datasets, on the last one). None if the trainer has no
    data, or if `--data` replaces its data.
    """
    masked, unread = _masked(draft, machine, trainer)
    given = program.argument(trainer, "train_dataset")
    if given is None:
        draft.warn(None, "the trainer has no data", "`--data` names it")
        _unread(draft, unread, COLLATOR)
        return None
    if draft.sources:
        found = given.location.entry("train_dataset")
        draft.note(found, "`--data` names another")
        if masked:
            why = "the script trains only on answers; the spec does so only with `completion_only` or `assistant_only`"
            draft.differs("train_dataset", why, found)
        _unread(draft, unread, COLLATOR)
        return None
    chain = chain_of(given.value)
    parts = chain.parts or [chain]
    field = program.argument(trainer, "dataset_text_field") or _configured(entries, "dataset_text_field")
    data = Data()
    problems: list[tuple[Object, str, str]] = []
    for one in parts:
        data = understood(machine, _joined(one, chain) if chain.parts else one)
        problems += [each for each in data.problems if each not in problems]
        if prompt is not None and METHODS[draft.method].grouped:
            data.columns["prompt"] = Column(prompt)
        packs = trainer.keywords.get("packing") or _configured(entries, "packing")
        data.ended = data.ended or (packs is not None and packs.value is True)
        _source(draft, machine, trainer, one, data, field, masked)
    lost = [one for one in chain.parts if one.loaded is None and one.file is None and not one.rows]
    if lost and draft.sources:
        why = f"{len(lost)} of the {len(parts)} datasets that the script joins are not known, and the spec has no rows"
        draft.error(given.location.entry("concatenate_datasets"), f"{why} of these",
                    "save their rows as JSONL, and add the files to the spec's data")  # fmt: skip
    if chain.mixed is not None and len(draft.sources) == len(parts):
        _mixed(draft, chain.mixed)
    if chain.parts:
        problems += _of_a_mixture(understood(machine, Chain(steps=chain.steps)), chain)
        chain.unknown += [each for one in parts for each in one.unknown]
    _response(draft, trainer)
    data.problems = problems
    open_ = _problems(draft, machine, trainer, chain, data, given)
    _unread(draft, unread, open_ or COLLATOR)
    if trainer.last == "Trainer" and draft.method == "sft":
        _length(draft, data, trainer, open_)
    evaluation.hold_out(draft, data)
    evaluation.write(draft, machine, trainer, chain, data, entries)
    _stream(draft, chain, entries)
    return data


def _response(draft: Draft, trainer: Object) -> None:
    """Report a difference if the collator's `response_template` is not the end of the script's prompt, directly before
    the answer.
    """
    given = program.argument(trainer, "data_collator")
    call = None if given is None else given.value
    written = draft.settings.get("data.prompt_template")
    if not isinstance(call, Object) or call.last != "DataCollatorForCompletionOnlyLM" or written is None:
        return
    template = call.argument("response_template", 0)
    text = written.text.strip('"')
    text = draft.files[text].decode() if text in draft.files else text.replace("\\n", "\n")
    if template is None or (isinstance(template.value, str) and text.rstrip().endswith(template.value.strip())):
        return
    draft.differs(
        "response_template",
        "in a row, the script's loss begins after the last occurrence of this text; the spec's begins after the "
        "prompt",
        template.location.entry("response_template", template.value if isinstance(template.value, str) else None)
    )  # fmt: skip


def _stream(draft: Draft, chain: Chain, entries: Entries) -> None:
    """Set how a streamed dataset is shuffled, and pass `streaming` on to the importer of TRL's arguments."""
    given = chain.loaded.keywords.get("streaming") if chain.loaded is not None else None
    if given is None or given.value is not True:
        return
    entries.values["streaming"] = given.location.entry("streaming", True)
    order = next((one for one in chain.steps if one.last == "shuffle"), None)
    if order is not None:
        buffer = order.argument("buffer_size", 1)
        draft.put("data.shuffle", True, None, "the script shuffles the stream")
        if buffer is not None and isinstance(buffer.value, int):
            draft.put("data.shuffle_buffer", buffer.value, None, "the script's buffer")


def _of_a_mixture(data: Data, chain: Chain) -> list[tuple[Object, str, str]]:
    """Find an operation, such as `select`, that takes a part of several joined datasets, which is an error: a spec
    takes a part of each dataset. Returns the operation, the reason and the help, or an empty list.
    """
    if data.take is None and data.limit is None:
        return []
    taking = (one for one in chain.steps if one.last in ("select", "take", "head", "sample"))
    step = next(taking, chain.steps[-1])
    why = "the script takes a part of several joined datasets; a spec takes a part of each dataset"
    return [(step, why, "write `take` or `limit` at each dataset of the spec")]


ENDS = {"first_exhausted": "stop", "all_exhausted": "repeat"}
"""Maps each `stopping_strategy` of `interleave_datasets` to a value of the setting `exhausted`."""


def _mixed(draft: Draft, call: Object) -> None:
    """Set the shares of `interleave_datasets`. Without probabilities, it takes a row of each dataset in turn, so all
    shares are equal.
    """
    probabilities, strategy = call.argument("probabilities", 1), call.argument("stopping_strategy", 5)
    way = "first_exhausted" if strategy is None else strategy.value
    found = call.location.entry("interleave_datasets")
    if not isinstance(way, str) or way not in ENDS:
        draft.error(found, "a spec has no such way to end a mixture", "write `all_exhausted`")
        return
    stated = None if probabilities is None else probabilities.value
    shares = None if stated is None else [
        one if isinstance(one, int | float) else None for one in (stated if isinstance(stated, list | tuple) else ())
    ]  # fmt: skip
    if mixture.share_out(draft, found, None, shares, ENDS[way]) and shares is not None:
        why = "the script draws the dataset of each row at random; the spec's shares are exact"
        draft.differs("interleave_datasets", why, found)


def _configured(entries: Entries, name: str) -> Argument | None:
    return entries.config.keywords.get(name) if entries.config is not None else None


def _joined(part: Chain, whole: Chain) -> Chain:
    """The origin of one of several joined datasets, with the operations on this dataset alone and then on the joined
    dataset.
    """
    out = Chain(part.loaded, part.file, part.rows, part.location)
    out.steps, out.unknown = [*part.steps, *whole.steps], [*part.unknown, *whole.unknown]
    out.columns = dict(part.columns)
    return out


def _source(
    draft: Draft, machine: Machine, trainer: Object, chain: Chain, data: Data, field: Argument | None, masked: bool
) -> None:
    location = chain.loaded.location if chain.loaded is not None else trainer.location
    if chain.loaded is not None and chain.loaded.last == "load_from_disk":
        refuse_arrow(draft, chain.loaded, data)
    source = source_of(draft, chain, data)
    if source is None:
        return
    formatting = program.argument(trainer, "formatting_func")
    text: object = None
    if formatting is not None and formatting.value is not None:
        value = formatting.value
        text = value if isinstance(value, Unknown) else rows.formatted(machine, value, data.columns)
    if data.problems and text is None and not data.columns:
        columns: tuple[str, ...] = ()
    else:
        columns = shapes.write(draft, data, location, field, text, masked, trainer.last == "Trainer")
    draft.sources.append(Written(source.ref, columns, source.take, source.limit))


COLLATOR = (
    "the script makes batches with its own collator, which the import cannot convert",
    "leave it out if it only pads",
)


def _unread(draft: Draft, found: Entry | None, reason: tuple[str, str]) -> None:
    """Report the script's own collator (`found`) as an error with the reason and help in `reason`. If there is an error
    about the rows, `reason` is the same, so that `--partial` makes one decision of both.
    """
    draft.error(found, *reason)


def _problems(
    draft: Draft, machine: Machine, trainer: Object, chain: Chain, data: Data, given: Argument
) -> tuple[str, str] | None:
    """Report an error for each operation on the data that a spec cannot express.

    Returns the reason and the help of the error if the rows cannot be read, so that errors about the sequence length
    and the collator can repeat them; otherwise None.
    """
    open_: tuple[str, str] | None = None
    collator = program.argument(trainer, "data_collator")
    made = collator.value if collator is not None else None
    copied = isinstance(made, Object) and made.last == "DataCollatorForLanguageModeling"
    if copied and data.end and draft.method == "sft":
        draft.put("method.completion_only", False, None, "the collator replaces the labels, for all tokens")
    for step, why, help in data.problems:
        if copied and token_rows.PADDED in why:
            continue  # the collator replaces the labels and masks padding, so labels on padding have no effect
        name = step.last.strip("[]:") or "slice"
        draft.error(step.location.entry(f"dataset.{name}"), why, help)
        open_ = open_ or (why, help)
    read = [one for one in (chain, *chain.parts) if one.looped]
    known = {one.file.location if one.file else one.loaded.location if one.loaded else None for one in read}
    filters = [one for one, source in machine.filters if read and (None in {source, *known} or source in known)]
    for location in filters[:2]:
        draft.error(location.entry("rows"), "a loop of the script skips rows by a condition", ONCE)
    loaded = any(
        message.severity == "error" and message.entry is not None and message.entry.key.startswith("load_")
        for message in draft.messages
    )
    missing = not draft.sources and not loaded
    where = _origin(draft, machine) if missing else ""
    for one in chain.unknown[:1]:
        open_ = (f"the rows are not known: {one.why}{where}", ONCE)
        draft.error(one.location.entry("train_dataset"), *open_)
    if missing and not chain.unknown and data.problems and where:
        open_ = (f"{data.problems[0][1]}{where}", data.problems[0][2])
        draft.error(given.location.entry("train_dataset"), *open_)
    if missing and not chain.unknown and not data.problems:
        open_ = (f"the script creates the rows itself{where}", "save them as JSONL, and name the file by `--data`")
        draft.error(given.location.entry("train_dataset"), *open_)
    return open_


def _origin(draft: Draft, machine: Machine) -> str:
    """Guess the source of data that cannot be traced: a hub dataset or file that the script loads, preferably with
    `train` in its name. Returns a clause about the guess for error messages, or "".
    """
    found: list[tuple[str, Chain]] = []
    unnamed = ""
    for one in machine.calls:
        if one.last == "load_dataset" and is_library(one.path):
            given = one.keywords.get("data_files") or one.argument("path", 0)
        elif one.last in OPENED and one.positional and _reads(one):
            given = one.positional[0]
        else:
            continue
        value = given.value if given is not None else None
        if isinstance(value, Unknown):
            unnamed = unnamed or f", of a file that is not known: {value.why}"
        elif isinstance(value, Object | Text):
            unnamed = unnamed or ", of a file that is not known"
        elif isinstance(value, str) and one.last == "load_dataset" and value not in KINDS:
            found.append((value, Chain(loaded=one)))
        elif isinstance(value, str) and value.endswith(ROWS) and not NO_ROWS.search(value):
            found.append((value, Chain(file=given)))
    # exclude .txt files: a file such as `last_run.txt` more likely contains the name of the data than the data
    if unnamed:
        found = [one for one in found if not one[0].endswith(".txt")]
    found.sort(key=lambda each: "train" not in each[0].lower())
    for name, chain in found:
        source = source_of(draft, chain, Data())
        if source is not None:
            draft.sources.append(Written(source.ref, (), source.take, source.limit))
            return f"; the spec reads `{name}` as it is"
    return unnamed


def _reads(call: Object) -> bool:
    """Whether a call of `open` opens a file for reading."""
    mode = call.argument("mode", 1)
    return mode is None or not isinstance(mode.value, str) or "r" in mode.value


def _length(draft: Draft, data: Data, trainer: Object, open_: tuple[str, str] | None) -> None:
    """Set the sequence length if the trainer is transformers' Trainer. The script then tokenizes the rows itself, and
    the length is the `max_length` of its tokenizer call.
    """
    found = data.length
    if found is not None and isinstance(found.value, int):
        draft.put("batch.seq", found.value, found.location.entry("max_length", found.value))
        return
    location = found.location if found is not None else trainer.location
    if open_ is not None and found is None:
        draft.error(location.entry("max_length"), *open_)
        return
    why = (
        "its value is not known"
        if found is not None
        else "the script truncates no row, but a spec needs a maximum length"
    )
    draft.error(location.entry("max_length"), why, "write `batch { seq = N }`")


def _masked(draft: Draft, machine: Machine, trainer: Object) -> tuple[bool, Entry | None]:
    """Return whether the script trains only on answers, by TRL's completion collator or Unsloth's
    `train_on_responses_only`, and the trainer's collator argument if the script defines the collator itself (else
    None).
    """
    call = program.responses_only(machine, trainer)
    if call is not None:
        draft.note(call.location.entry("train_on_responses_only"), "the loss includes only answers")
        return True, None
    given = program.argument(trainer, "data_collator")
    value = None if given is None else given.value
    if given is None or value is None:
        return False, None
    found = given.location.entry("data_collator")
    if isinstance(value, Object) and _own_methods(value):
        return False, found
    if isinstance(value, Instance) and _only_pads(value.kind):
        draft.note(found, "it only pads the rows of a batch")
        return False, None
    if isinstance(value, Object) and value.last == "DataCollatorForCompletionOnlyLM":
        draft.note(found, "the loss includes only answers")
        return True, None
    if isinstance(value, Object | Name) and value.last in COLLATORS:
        mlm = value.keywords.get("mlm") if isinstance(value, Object) else None
        masks = value.last == "DataCollatorForLanguageModeling" and (mlm is None or mlm.value is not False)
        if masks and trainer.path.startswith("transformers"):
            why = "this collator masks random tokens, which trains models like BERT, not models that generate text"
            draft.error(found, why, "write `mlm=False`")
        else:
            draft.note(found, "it pads rows to the longest row of a batch")
        return False, None
    if isinstance(value, Unknown):
        draft.error(found, f"the import cannot read the collator: {value.why}", COLLATOR[1])
        return False, None
    return False, found


PADDING = ("pad_sequence", "tuple", "dict", "zip", "ne", "tensor", "LongTensor", "as_tensor", "isinstance")
"""Names of the functions that a collator may call if it only pads rows."""


def _only_pads(kind: Class) -> bool:
    """Whether a script's collator only pads: tokens with any token, and labels with -100, as in Stanford Alpaca."""
    method = kind.find("__call__")
    if not isinstance(method, Function):
        return False
    parts = list(ast.walk(method.node))
    calls = {ast.unparse(one.func).rpartition(".")[2] for one in parts if isinstance(one, ast.Call)}
    stored = any(isinstance(one, ast.Subscript | ast.Attribute) and isinstance(one.ctx, ast.Store) for one in parts)
    padded = [ast.unparse(one.value) for one in parts if isinstance(one, ast.keyword) and one.arg == "padding_value"]
    masked = any(one == "-100" or one.upper().endswith(("IGNORE_INDEX", "IGNORE_TOKEN_ID")) for one in padded)
    return "pad_sequence" in calls <= set(PADDING) and masked and not stored


def _own_methods(made: Object) -> bool:
    """Whether the object's class is defined in the script, inherits from a library's class, and has methods of
    its own.
    """
    kind = made.attributes.get("<class>")
    lineage = kind.lineage() if isinstance(kind, Class) else []
    return any(
        isinstance(value, Function) and name != "__init__" for one in lineage for name, value in one.attributes.items()
    )
