"""Import streamed datasets: `streaming` of TRL, axolotl and LLaMA-Factory."""

from __future__ import annotations

import re

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entry, integer, is_on, is_stated

LIBRARY = 1000
"""The default buffer size, in rows, of `IterableDataset.shuffle` in the library datasets."""
SLICE = re.compile(r"\[[^\]]*:")
"""Matches the beginning of a range of rows, such as `[train:` in `org/name[train:10%]`."""


def stream(draft: Draft, entry: Entry | None, buffer: Entry | None, usual: int | None, tool: str) -> None:
    """Set `streaming` if a spec can stream this data; otherwise, report why the run reads all rows before training.

    All other settings must be set before. `buffer` is the tool's key for the rows in the shuffle buffer, and `usual`
    its default, or None if the tool does not shuffle a stream.
    """
    reason = "" if draft.on(entry) is None else _why_complete(draft)
    if not is_on(entry) or reason:
        draft.note(buffer, "without a stream, the run shuffles all rows together")
        if reason:
            draft.settings.pop("data.shuffle_buffer", None)
            draft.note(entry, f"the run reads all rows before it trains: {reason}")
            draft.warn(entry, f"the run reads and shuffles all rows before it trains: {reason}")
        return
    draft.put("data.streaming", True, entry)
    if not draft.has("save.every"):
        why = "saves after each epoch; the spec, whose stream has no epochs, saves after each tenth of the run"
        draft.differs("save_strategy", f"{tool} {why}")
    draft.overrule("data.workers", "the training process itself tokenizes a stream")
    if usual is None:
        draft.default("data.shuffle", False, f"{tool} does not shuffle a stream")
    if draft.value("data.shuffle") == "false":
        draft.note(buffer, "the run does not shuffle the rows")
    elif not is_stated(buffer):
        draft.put("data.shuffle_buffer", usual or LIBRARY, None, f"not set: {tool}'s default")
        draft.note(buffer, "null: the default")
    elif (integer(buffer) or 0) > 1:
        draft.put("data.shuffle_buffer", integer(buffer), buffer)
    else:
        draft.error(buffer, "the value must be a number of rows, at least 2", f"write `{buffer.key}: {usual}`")


def _why_complete(draft: Draft) -> str:
    """Why the rows cannot be streamed, but must be read completely; "" if they can be streamed."""
    from xpc.compiler.rules.data.streams import COMPLETE, INTERVALS

    if draft.method != "sft":
        return f"{draft.method} has no streams"
    if not draft.has("train.steps"):
        return "a streamed run needs a number of steps"
    if len(draft.sources) != 1:
        return "a stream has one source"
    (source,) = draft.sources
    if source.take is not None or source.limit is not None or SLICE.search(source.ref):
        return "the run selects a part of the rows"
    for path, value, _ in COMPLETE:
        # `data.workers` does not prevent a stream: the function `stream` removes this setting
        if path != "data.workers":
            text = draft.value(path)
            if text == value if value else text not in ("", "false"):
                return f"`{path}{value and f' = {value}'}` needs all rows"
    if "tokens" in (source.format, draft.value("data.format")):
        return "the run checks the token ids of all rows"
    for path in INTERVALS:
        if draft.value(path) == "epoch":
            return f"`{path}` counts epochs, and a stream has none"
    return ""
