"""Import a mixture of datasets, such as `interleave_datasets(rows, probabilities=[0.7, 0.3])`: the share of each
dataset, and when the mixture ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entry
from xpc.grammar.record import evolve


def share_out(
    draft: Draft, entry: Entry, stated: Entry | None, shares: Sequence[float | None] | None, end: str
) -> bool:
    """Set the share of each source, and set `exhausted` to `end`. Without `shares`, all shares are equal. If they do
    not fit the sources, report an error at the key `stated`, and return False.
    """
    count = len(draft.sources)
    each = [1 / count] * count if shares is None else [*shares]
    total = sum(one or 0.0 for one in each)
    if len(each) != count or not all(each) or abs(total - 1) > 0.0005:
        why = f"the value must be {count} probabilities, one for each dataset, whose sum is 1"
        draft.error(stated or entry, why, "write a number for each dataset")
        return False
    draft.sources = [evolve(one, share=share) for one, share in zip(draft.sources, each, strict=True)]
    draft.put("data.exhausted", end, entry)
    draft.mark(stated, "mapped", "share")
    return True
