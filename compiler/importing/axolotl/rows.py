"""Import axolotl's keys that select rows: axolotl may train on one shard of a dataset, and it drops rows that are too
long.
"""

from __future__ import annotations

import math

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.keys import has_needed
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, integer, is_on, is_stated
from xpc.compiler.importing.trl import formats
from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.methods import METHODS

SCALE = 1_000_000
"""For N shards, the spec takes the share 1 / N of the rows, rounded up to a multiple of 1 / SCALE, because axolotl
rounds up the size of its first shard.
"""


def in_order(draft: Draft, named: Entries) -> Entry | None:
    """The key because of which axolotl trains on the rows in their order. None if it shuffles them."""
    merged, order = named.get("shuffle_merged_datasets"), named.get("curriculum_sampling")
    if has_needed(named, "pretraining_dataset") or has_needed(named, "streaming"):
        return merged if boolean(merged) is False else None
    return order if is_on(order) and draft.method == "sft" else None


def part(draft: Draft, table: Entries, named: Entries) -> Amount | None:
    """Import `shards`. axolotl shuffles a dataset, divides it into this many parts, and trains on one of them. Returns
    the share of the rows that one part has, or None for all rows.
    """
    parts, which = table.get("shards"), table.get("shards_idx")
    number = integer(parts)
    if not is_on(parts):
        draft.note(which, "the rows are not divided into shards")
        return None
    if draft.method not in ("sft", "reward"):
        for one in (parts, which):
            draft.note(one, f"axolotl reads every row for {draft.method}")
        return None
    if number is None or number < 1:
        draft.error(parts, "the value must be a number of shards, at least 1")
        return None
    if in_order(draft, named) is not None:
        draft.error(parts, "axolotl shuffles the rows before it takes a shard; the spec does not shuffle",
                    "write these rows to a file, and name it by `--data`")  # fmt: skip
        return None
    share = math.ceil(SCALE / number) / SCALE
    draft.mark(parts, "mapped", f"take = {share:.10g}")
    if which is not None and integer(which):
        why = "axolotl reads another shard of the shuffled rows; the spec reads the first one"
        draft.drop("shards_idx", why, which)
    elif which is not None:
        draft.note(which, "the first part")
    return None if number == 1 else Amount("share", share)


def _prepared(draft: Draft, entry: Entry | None) -> None:
    """Import `skip_prepare_dataset`. In preference tuning and RL, axolotl then does not drop long rows. In sft and for
    reward models, the key is an error, because it means rows of images or tokens, which an import does not support.
    """
    if draft.on(entry) is None:
        return
    if draft.method in ("sft", "reward"):
        draft.error(entry, "axolotl passes images or tokens to the trainer unchanged, and xpc does not import such "
                    "rows")  # fmt: skip
    elif METHODS[draft.method].generates:
        draft.note(entry, "no prompt is ever dropped for its length")
    else:
        draft.note(entry, "no row is dropped for its length")


def long(draft: Draft, named: Entries) -> None:
    """Set `data.max_tokens`, because axolotl drops rows longer than `sequence_len`. Nothing is set where axolotl drops
    no rows: with `excess_length_strategy: truncate` or `skip_prepare_dataset`, for plain texts (which it splits), and
    for methods that read only prompts.
    """
    way, length, as_it_is = (named.get(key) for key in ("excess_length_strategy", "max_length", "skip_prepare_dataset"))
    word = str(way.value).lower() if is_stated(way) else "drop"
    most = integer(length) or 512
    shapes = formats.of_rows(draft)
    _prepared(draft, as_it_is)
    packs = draft.value("batch.packing") == "true"
    if "text" in shapes and not (packs and len(shapes) == 1):
        draft.differs(
            "sequence_len",
            "axolotl continues a text longer than `sequence_len` in another row; the spec "
            + ("keeps its beginning" if len(shapes) == 1 or word == "truncate" else "drops the text"),
        )
    if shapes == ("text",):
        draft.note(way, "axolotl does not truncate a long plain text: it continues the text in another row")
    elif METHODS[draft.method].generates:
        draft.note(way, f"{draft.method} reads only prompts")
    elif is_on(as_it_is):
        draft.note(way, "`skip_prepare_dataset` keeps every row")
    elif word == "truncate":
        draft.mark(way, "mapped", "batch.seq")
    elif word in ("drop", "raise"):
        draft.put("data.max_tokens", most, way, "" if way else "not set: axolotl drops rows longer than `sequence_len`")
        if way is not None and word == "raise":
            draft.differs(
                "excess_length_strategy", "axolotl fails on a row longer than `sequence_len`; the spec drops it", way
            )
    elif way is not None:
        draft.error(way, "the value must be drop, truncate or raise")
