"""Rules about tokenized rows, which contain token ids instead of text (XP150 to XP154, XP157)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data import rows
from xpc.compiler.rules.core.conditions import token_rows
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.data.structure import have
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import Survey
from xpc.compiler.stacks import able

WHEN = token_rows


def _tokens(spec: Spec) -> Iterator[tuple[DataSource, Survey]]:
    """The files of tokenized rows that were read without an error, each with its survey. The rule XP554 reports wrong
    rows.
    """
    for source in spec.files:
        found = rows.survey(source) if source.shape == "tokens" else None
        if found is not None and found.wrong is None:
            yield source, found


@rule("XP150", "ids-outside-the-vocabulary")
def outside_the_vocabulary(spec: Spec) -> Iterator[Finding]:
    """The ids and labels of tokenized rows must be in the model's vocabulary. `xpc check` checks all rows of a local
    JSON Lines file. The run checks the rows of all other sources before it loads the model.

    Why it is bad: the rows were probably tokenized for another model, so their ids stand for other words in this
    model's vocabulary.

    Without this rule: IndexError ("index out of range in self") in the first step on a CPU; on a GPU, a CUDA assertion
    that does not name the row.

    Source: torch 2.13 `nn.functional.embedding`; confirmed by running it.
    """
    facts = spec.model.facts
    # if the spec adds tokens, only the run knows the size of the vocabulary
    if facts is None or spec.names("model.tokens"):
        return
    for source, found in _tokens(spec):
        largest, row = found.largest or (-1, 0)
        if largest >= facts.vocab:
            yield Finding(
                source.label,
                f"row {row:,} of `{source.name[:80]}` has the token id {largest:,}, and {spec.model.name} has "
                f"{facts.vocab:,} tokens",
                "tokenize the rows with this model's tokenizer, or train the model that they were tokenized for",
                (spec.model.label,),
            )


@rule("XP151", "labels-of-other-tokens", "warning")
def other_labels(spec: Spec) -> Iterator[Finding]:
    """Each label must be the token id at the same position, or -100 for a token that is not learned. The labels must
    not be shifted, because the loss shifts them by one. A row with other labels is a warning; on a stack whose trainer
    ignores the labels of rows, it is an error.

    Why it is bad: labels that were shifted before the run are shifted twice, and the model learns to predict the token
    after the next one.

    Without this rule: trl 1.16 silently trains on the labels as they are; trl 0.18 silently ignores them, as does trl
    0.24 with packing or Liger.

    Source: transformers 5.23 `loss/loss_utils.py` (`ForCausalLMLoss` shifts); trl 1.16, 0.24 and 0.18
    `sft_trainer.py`; confirmed by running it.
    """
    reads = spec.stack.facts.reads_labels
    for source, found in _tokens(spec):
        one = found.tallies.get("other_labels")
        if one is not None:
            yield Finding(
                source.label,
                f"row {one.first:,} of `{source.name[:80]}` has labels that differ from its tokens"
                + ("" if reads else f", and {spec.stack.name} ignores the labels and learns the tokens"),
                "write the token itself as its label, or -100: the loss shifts labels by one"
                + ("" if reads else f"; or write `target {able(lambda one: one.facts.reads_labels)}`"),
                () if reads else (spec.label("target", "the target"),),
                severity=None if reads else "error",
            )


@rule("XP152", "mask-of-tokens-dropped")
def mask_dropped(spec: Spec) -> Iterator[Finding]:
    """On trl-0.18, tokenized rows with tokens that are not learned cannot be packed, flattened or trained with Liger.

    Why it is bad: the loss would include the tokens whose label is -100.

    Without this rule: trl 0.18 silently drops labels and masks when it packs, flattens or uses Liger, and trains on
    every token.

    Source: trl 0.18 `sft_trainer.py` (`_prepare_dataset`, `DataCollatorWithFlattening`); confirmed by running it.
    """
    if not spec.drops_masks:
        return
    path = spec.drops_masks[0]
    name = path.rpartition(".")[2]
    for source, found in _tokens(spec):
        one = found.tallies.get("unlearned")
        if one is not None:
            other = able(lambda one: not one.facts.completion_only_conflicts)
            yield Finding(
                spec.location(path),
                f"{spec.stack.name} learns every token with `{name}`, and row {one.first:,} of "
                f"`{source.name[:80]}` has tokens that are not learned",
                f"leave `{name}` out, or write `target {other}`",
                (source.label, spec.label("target", "the target")),
            )


@rule("XP153", "loss-mask-of-tokenized-rows")
def loss_mask(spec: Spec) -> Iterator[Finding]:
    """`completion_only` cannot be used if all rows are tokenized: their labels or masks decide which tokens are
    learned.

    Why it is bad: `completion_only` has no effect on tokenized rows.

    Without this rule: trl 1.16 and 0.24 read the labels and silently ignore `completion_only = true`. With
    `completion_only = false`, trl 1.16 silently ignores a `completion_mask`.

    Source: trl 1.16 and 0.24 `sft_trainer.py`; confirmed by running it.
    """
    if not spec.written("method.completion_only") or spec.mixes_shapes:
        return
    source = next((one for one in spec.data if one.shape == "tokens"), None)
    if source is not None:
        yield Finding(
            spec.location("method.completion_only", "the rows' labels decide which tokens are learned"),
            "`completion_only` has no effect on rows that are tokens",
            "leave `completion_only` out; `data(columns=[input_ids])` reads the ids alone and learns all of them",
            (source.label,),
        )


@rule("XP154", "token-ids-not-read", "warning")
def ids_not_read(spec: Spec) -> Iterator[Finding]:
    """Rows with a column `input_ids` are probably tokenized. If they also have texts or messages, these are read and
    tokenized again, unless the spec says `format = tokens`.

    Why it is bad: the run would not train on the ids and labels that the rows have.

    Without this rule: the columns `input_ids` and `labels` are silently dropped.

    Source: trl 1.16 reads `input_ids` if the rows have it (`sft_trainer.py`, `is_processed`); the runtime drops this
    column.
    """
    for source in spec.data if spec.text("method") == "sft" and not spec.written("data.format") else ():
        if source.shape != "tokens" and not source.only and "input_ids" in (source.found or ()):
            yield Finding(
                source.label,
                f"`{source.name[:80]}` has token ids that are not read: its rows of {source.shape} are tokenized again",
                "write `data(format=tokens)` to train on the ids, or leave the column out of the data",
            )


MARKS = {
    "learned_padding": (
        "four equal tokens at their end, which are learned and are probably padding",
        "set `attention_mask` to 0 for padding, or leave the padding out of the rows",
    ),
    "dropped_tokens": (
        "an `attention_mask` of 0 for tokens that differ from each other, so they are no padding, but are dropped",
        "write -100 into `labels`, or 0 into `completion_mask`, for tokens that are not learned",
    ),
    "unlearned_end": (
        "tokens in the loss at its beginning, but not at its end",
        "write 1 into masks, and the token into `labels`, where a token is learned",
    ),
    "various_ends": (
        "no common end token: less than a tenth of the rows end with the same token",
        "add the end token to the ids (and labels), or write the rows as texts, which get one",
    ),
}
"""Maps each suspicious property of tokenized rows, such as padding that is learned, to the words for the message and
the help. compiler/data/export_marks.py and file_counts.py find these properties.
"""


@rule("XP157", "tokens-learned-otherwise", "warning")
def learned_otherwise(spec: Spec) -> Iterator[Finding]:
    """Tokenized rows should end with an end token whose label is not -100. Labels of padding should be -100.
    `attention_mask` should be 0 for padding only. This rule warns if at least half of a file's rows differ from this.
    Rows that all have the same length, such as parts of long texts, need no end token.

    Why it is bad: the model never learns to stop, learns to write padding, or never sees the prompts.

    Without this rule: nothing is reported, except by `xpc preview` for the end token (XP592).

    Source: trl 1.16, 0.24 and 0.18 `sft_trainer.py` add no end token to `input_ids`; confirmed by running it.
    """
    for source, found in _tokens(spec):
        for kind, (words, help) in MARKS.items():
            one = found.tallies.get(kind)
            if one is not None and 2 * one.count >= found.rows:
                yield Finding(source.label, f"{have(one, found, source)} {words}", help)
