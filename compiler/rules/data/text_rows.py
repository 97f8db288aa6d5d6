"""Rules about local files of plain text: lines that should not be read as documents, and texts that are cut away
(XP188, XP197).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.rules.core.conditions import plain_texts
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = plain_texts

LETTERS = 6
"""A text has on average at most this many characters per token. English has about 4.5, code 3, Chinese less than 2."""
SEVERAL = 8


@rule("XP188", "lines-that-are-no-documents", "warning")
def no_documents(spec: Spec) -> Iterator[Finding]:
    """The lines of a .txt file that is read line by line should be documents. If every line is a JSON object, xpc
    assumes that the file is JSON Lines with the wrong ending. If half of the lines have 50 to 100 characters and are
    followed by a line that begins with a lowercase letter, xpc assumes that the lines are parts of paragraphs.

    Why it is bad: the model learns to write JSON, or to stop after each line of a paragraph.

    Without this rule: nothing is reported.

    Source: datasets 5.2 and 5.0 `packaged_modules/text`, which read a line as a row.
    """
    for source in spec.files:
        found = rows.valid_survey(source) if source.shape == "text" and source.documents == "line" else None
        if found is None or found.rows < SEVERAL:
            continue
        name = f"`{source.name[:80]}`"
        if found.count("objects"):
            yield Finding(
                source.label,
                f"all {found.rows:,} lines of {name} are JSON objects, which are learned as text",
                "rename the file, such as `rows.jsonl`, so that its columns are read",
            )
        elif 2 * found.count("wrapped") >= found.rows:
            yield Finding(
                source.label,
                f"{found.count('wrapped'):,} of the {found.rows:,} lines of {name} go on in the next line",
                "write `data(documents=paragraph)`, or join the lines of a paragraph",
            )


@rule("XP197", "text-cut-away", "warning")
def cut_away(spec: Spec) -> Iterator[Finding]:
    """A run should train on at least half of the text of a local file. A text is cut at `seq` tokens, unless `long =
    chunk` or packing (`strategy = wrapped` or `bfd_split`) splits it, or `max_tokens` drops it. xpc check does not
    tokenize: it counts six characters as a token. Most tokens are shorter, so at least the reported share is lost.
    `data(long=cut)` states that the cut is intended.

    Why it is bad: most of the text is never trained on.

    Without this rule: only the run prints how many tokens are cut.

    Source: trl 1.16, 0.24 and 0.18 `sft_trainer.py` (`truncate_dataset`); confirmed by running it.
    """
    seq = spec.get("batch.seq")
    if spec.text("method") != "sft" or not isinstance(seq, int) or spec.written("data.long"):
        return
    splits = spec.flag("batch.packing") and spec.get("batch.packing.strategy") in ("wrapped", "bfd_split")
    if spec.get("data.max_tokens") is not None or splits:
        return
    for source in spec.data:
        for part in source.of_split(source.split):
            found = rows.survey(part) if part.shape == "text" else None
            long = {} if found is None else found.characters
            total = sum(length * count for length, count in long.items())
            lost = sum(max(0, length - LETTERS * seq) * count for length, count in long.items())
            if found is not None and 2 * lost > total:
                share = int(100 * lost / total)
                yield Finding(
                    source.label,
                    f"at least {share}% of the text of `{part.name[:80]}` is cut away at seq = {seq:,}",
                    "write `data(long=chunk)`, which splits long texts, or a longer `seq`; `data(long=cut)` states "
                    "that the cut is intended",
                    (spec.label("batch.seq", f"{seq:,} tokens"),),
                )
                break
