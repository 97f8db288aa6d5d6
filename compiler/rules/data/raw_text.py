"""Rules about raw text: how a file is divided into documents, and texts that are longer than a row (XP543, XP544)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.rules.core.conditions import raw_text
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = raw_text


@rule("XP543", "no-such-text")
def no_such_text(spec: Spec) -> Iterator[Finding]:
    """`documents`, which divides .txt files into rows, needs a .txt file, and `long` needs rows of plain text. `long =
    chunk` splits long rows at `seq`, so the spec must have a `seq`.

    Why it is bad: `documents` has no effect on files other than .txt, and `long` has no effect on conversations.

    Without this rule: nothing is reported; conversations are cut at `seq`, whatever `long` says.

    Source: the runtime's `local_sources.py` and `chunks.py`.
    """
    if spec.written("data.documents") and not any(one.documents for one in spec.sources):
        yield Finding(
            spec.location("data.documents", "no source is a .txt file"),
            "`documents` has no effect: it divides .txt files into rows",
            "leave `documents` out; in a file that is not .txt, each row is one document",
        )
    texts = [one for one in spec.sources if one.shape == "text" and not one.chat]
    if spec.written("data.long") and not texts and "data" not in spec.wrong:
        yield Finding(
            spec.location("data.long", "no source has plain text"),
            "`long` has no effect: it is for rows of plain text",
            write("max_tokens = 4096", " to drop rows that are longer, or leave `long` out"),
        )
    uncut = spec.flag("batch.padding_free") and not spec.flag("batch.packing") and not spec.written("batch.seq")
    if spec.get("data.long") == "chunk" and uncut:
        yield Finding(
            spec.location("data.long", "splits at `seq`"),
            "`long = chunk` needs a length: without `seq`, flattened rows have any length",
            "write `batch(seq=2048)`, or leave `long` out",
            (spec.label("batch.padding_free", "rows of any length"),),
        )


@rule("XP544", "lines-as-documents", "note")
def lines_as_documents(spec: Spec) -> Iterator[Finding]:
    """Each line of a .txt file is read as one document, unless `documents` says otherwise. A document is cut after
    `seq` tokens, unless `long = chunk` splits it.

    Why it is bad: a line of a book or an article is not a document. The model would learn to stop after each line, and
    would never see the text that is cut off.

    Without this rule: only the run counts the rows and the tokens that are cut.

    Source: datasets 5.2 and 5.0 `packaged_modules/text` (`sample_by`); confirmed by running it.
    """
    if spec.written("data.documents"):
        return
    for source in spec.data:
        if source.documents is None or source.shape != "text":
            continue
        count = rows.count(source)
        many = "" if count is None else f": {count:,} documents"
        more = "" if spec.written("data.long") else "; documents longer than `seq` are cut unless `long = chunk` is set"
        yield Finding(
            source.label,
            f"each line of `{source.name[:80]}` counts as one document{many}",
            f"write `documents = paragraph` or `documents = file` for longer documents{more}",
        )
        return
