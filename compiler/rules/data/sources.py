"""Rules about training data, its shape, and evaluation rows (XP50x, XP550, XP552)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from posixpath import normpath

from xpc.compiler.data.shapes import in_words
from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import EVALUATED, Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.spec.survey import SKETCH
from xpc.compiler.stacks import Stack, able
from xpc.grammar.diagnostic import Label
from xpc.grammar.record import evolve

SPLITS = ("train", "test", "validation", "valid", "val", "dev", "eval", "train_sft", "test_sft")
"""The usual names of splits. If a user writes such a name as a configuration, the user probably meant a split."""
FEW_SHARED = 0.01
"""The finding is only a note if less than this share of the evaluation rows is also in the training data, because short
rows may be equal by chance.
"""


@rule("XP501", "evaluation-without-data")
def evaluation_without_data(spec: Spec) -> Iterator[Finding]:
    """Evaluation needs rows: a held-out share of the training data, another split of it, or separate data.

    Why it is bad: the run cannot start.

    Without this rule: ValueError after the training data is tokenized.

    Source: transformers 5.23 `trainer.py`; confirmed by running it.
    """
    if spec.amount("eval.every") != NEVER and not spec.evaluates:
        yield Finding(
            spec.location("eval.every", "names no rows"),
            "evaluation has no data",
            'write `holdout = 5%`, `eval(split=test)` or `eval(data="eval.jsonl")`',
        )


@rule("XP502", "holdout-never-used", "warning")
def holdout_never_used(spec: Spec) -> Iterator[Finding]:
    """Held-out rows should be used by an evaluation.

    Why it is bad: rows that are held out are not trained on. If no evaluation uses them either, they serve no purpose.

    Without this rule: nothing is reported: the trainer gets the rows and never uses them.

    Source: no library refuses a trainer that has evaluation rows and never evaluates.
    """
    never = spec.amount("eval.every") == NEVER and spec.extra_value("trl", "eval_on_start") is not True
    for path in EVALUATED:
        if spec.written(path) and never:
            yield Finding(
                spec.location(path, "never read"),
                f"`{path[5:]}` is set, but evaluation is off",
                "write `eval(every=epoch)`",
            )


@rule("XP503", "shape-of-another-method")
def shape_of_another_method(spec: Spec) -> Iterator[Finding]:
    """The rows must have a shape that the method trains on, such as preference pairs for dpo. sft takes conversations,
    prompt and completion, text, or tokens; dpo, orpo, cpo and reward take preference pairs; kto takes single labelled
    completions, or pairs, which it splits; grpo and rloo take prompts; distill takes prompts, with or without
    completions.

    Why it is bad: the trainer needs columns that the rows do not have.

    Without this rule: KeyError for the missing column, after the model is loaded.

    Source: the trainers of trl 0.18 and 1.16; read, not run.
    """
    method, legal = spec.method.name, spec.method.shapes
    for source in spec.sources:
        if source.shape in legal:
            continue
        # imported only here, because only a wrong spec needs it
        from xpc.compiler.suggest.likely_columns import advice

        yield Finding(
            source.label,
            f"{method} cannot {'train' if source in spec.data else 'evaluate'} on {in_words(source.shape)}",
            advice(method, source, source.label.typed * (len(spec.data) > 1)),
            (spec.label("method", "the method"),),
        )


@rule("XP518", "split-as-configuration", "warning")
def split_as_configuration(spec: Spec) -> Iterator[Finding]:
    """A split such as `train` should be written in brackets, `org/name[train]`. In `org/name:train`, the name after `:`
    is the dataset's configuration.

    Why it is bad: few datasets have a configuration that is named like a split, so a split was probably meant.

    Without this rule: ValueError "BuilderConfig 'train' not found" when the run loads its data.

    Source: datasets 5.2 `builder.py` (`_create_builder_config`); confirmed by running it on a local folder.
    """
    for source in spec.sources:
        if source.id is not None and source.config in SPLITS:
            yield Finding(
                source.label,
                f"`:{source.config}` is a configuration, and `{source.config}` is the usual name of a split",
                f"for the split, write `{source.id}[{source.config}]`",
            )


@rule("XP505", "no-chat-template")
def no_chat_template(spec: Spec) -> Iterator[Finding]:
    """Conversations need a chat template, so a base model without a chat template cannot be trained on them. For a
    local model, this rule reads the tokenizer's own files.

    Why it is bad: the rows cannot be rendered.

    Without this rule: ValueError while the data is tokenized.

    Source: transformers 5.23 and 4.52 `tokenization_utils_base.py` (`get_chat_template`); confirmed by running it.
    """
    if spec.model.chat is not False or spec.get("model.chat_template") is not None or "data" in spec.wrong:
        return
    from xpc.compiler.data import rows  # imported only here, because most models have a template

    source = next((one for one in spec.sources if rows.conversational(one)), None)
    if source is not None:
        # imported only here, because only a wrong spec needs it
        from xpc.compiler.rules.core.chat_tokens import template_advice

        read = rows.survey(source)
        if read is not None and not {*rows.columns(source)} <= {*read.columns}:
            return  # the rule XP124 reports the missing columns; the rows may have another format than conversations
        yield Finding(
            spec.model.label,
            f"{spec.model.name} ships no chat template, but the data consists of conversations",
            template_advice(spec),
            (source.label,),
        )


@rule("XP507", "training-on-test", "warning")
def training_on_test(spec: Spec) -> Iterator[Finding]:
    """Training should not read a split called test.

    Why it is bad: published results are measured on the test split, so results of a model that was trained on this
    split cannot be compared with them.

    Without this rule: nothing checks the names of splits.

    Source: this is a convention; no library knows which split a benchmark reports on.
    """
    for source in spec.data:
        if source.split.lower().startswith("test"):
            better = "train" + source.split[4:]
            yield Finding(source.label, f"training on a split called `{source.split}`", f"write `[{better}]`")


@rule("XP508", "mixed-shapes")
def mixed_shapes(spec: Spec) -> Iterator[Finding]:
    """All sources of a mixture must have the same row shape, such as `text` or `messages`. Only sft can mix shapes,
    because its rows are tokenized before they are joined. `messages` and from/value conversations count as one shape,
    because the runtime converts from/value conversations to `messages`. Sources of one shape must all have texts, or
    all have messages, in the same columns.

    Why it is bad: the rows of all sources are concatenated. A row of one shape lacks the columns of another shape: for
    example, a row with `messages` has no column `text`.

    Without this rule: after the concatenation, each row has None in the columns of the other shapes, and the trainer
    raises AttributeError ("'NoneType' object has no attribute 'endswith'"). Texts and messages in one column end with
    a RunError at launch.

    Source: trl 1.16; confirmed by running it (`tests/proof/violations/idle.py`).
    """
    for mixture in (spec.data, *(one.sources for one in spec.evaluated)):
        if len(mixture) < 2:
            continue
        from xpc.compiler.data.rows import conversational  # imported only here, because few specs mix sources

        shapes = {source.kind: source for source in mixture}
        if len(shapes) == 1:
            talk = {conversational(source): source for source in mixture}
            if mixture[0].shape != "prompt" and {True, False} <= {*talk}:
                yield Finding(
                    talk[False].label,
                    f"the data mixes {in_words(mixture[0].shape)} of texts and of messages",
                    "write `chat = true` for all sources: prompts and answers that are texts become messages",
                    (talk[True].label,),
                )
        elif spec.text("method") != "sft":
            first, second, *_ = shapes.values()
            yield Finding(
                second.label,
                f"the data mixes {in_words(first.shape)} and {in_words(second.shape)}",
                "keep rows of one shape: only sft can mix shapes",
                (first.label,),
            )


def _keeps_order(stack: Stack) -> bool:
    return "train_sampling_strategy" in stack.fields()


@rule("XP509", "rows-always-shuffled")
def always_shuffled(spec: Spec) -> Iterator[Finding]:
    """`shuffle = false` needs a sampler that keeps the order of the rows. On trl-0.18 only kto has one, and grpo has
    `shuffle_dataset` instead; a stream keeps the order on every target.

    Why it is bad: the rows would not be read in the order that the spec states.

    Without this rule: the Trainer draws rows at random in every epoch.

    Source: transformers 4.52 `trainer.py` (`_get_train_sampler`); transformers 5.23 has `train_sampling_strategy`;
    read, not run.
    """
    ordered = _keeps_order(spec.stack) or spec.online or spec.text("method") == "kto" or spec.flag("data.streaming")
    if not spec.flag("data.shuffle") and not ordered:
        yield Finding(
            spec.location("data.shuffle", "the trainer draws rows at random"),
            f"{spec.stack.name} always shuffles",
            f"leave `shuffle` out, or write `target {able(_keeps_order)}`",
            (spec.label("target", "the target"),),
        )


@rule("XP550", "two-evaluation-sets")
def two_evaluation_sets(spec: Spec) -> Iterator[Finding]:
    """Evaluation rows must have only one origin: a held-out share (`holdout`), a split of the training data
    (`eval.split`), or separate data (`eval.data`). To evaluate several sets, name each of them in `eval.data`:
    `eval(data=[easy, hard])`.

    Why it is bad: if rows of several origins are stated, the run evaluates the rows of only one of them.

    Without this rule: if `holdout` and `eval.split` are both stated, the holdout is evaluated, and the split is
    silently never read.

    Source: LLaMA-Factory `data_args.py`, axolotl `validation.py`; running it confirmed which rows are evaluated.
    """
    ways: Mapping[Path, str] = {
        "data.holdout": "this holds rows out",
        "eval.data": "this names rows",
        "eval.split": "this names a split",
    }
    there = [path for path in ways if spec.get(path) is not None]
    if len(there) > 1:
        first, other = there[0], there[-1]
        yield Finding(
            spec.location(other, "would never be read" if other == "eval.split" else "this names rows, too"),
            "evaluation rows are named twice",
            f"leave out `{other[5:]}`, or `{first[5:]}`",
            (spec.label(first, ways[first]),),
        )


@rule("XP552", "evaluation-on-training-rows", "warning")
def evaluation_on_training_rows(spec: Spec) -> Iterator[Finding]:
    """Evaluation rows should not be trained on. xpc finds a file that is used for training and evaluation, a copy of
    such a file, and rows that a local evaluation file shares with a local training file. The order, white space and
    format of shared rows may differ. If less than 1 % of the evaluation rows are shared, the finding is a note.

    Why it is bad: the evaluation measures how well the model remembers its training rows.

    Without this rule: the evaluation loss silently follows the training loss and says nothing about new rows.

    Source: no library compares the rows of the two datasets.
    """
    trained: dict[str, int] = {}
    for number, source in enumerate(spec.data):
        for rows in stored_rows(source):
            trained.setdefault(rows, number)
    for one in spec.evaluated:
        for source in one.sources:
            found = [trained[rows] for rows in stored_rows(source) if rows in trained]
            if found:
                same = spec.data[min(found)]
                name, other = f"`{source.name[:80]}`", f"`{same.name[:80]}`"
                yield Finding(
                    one.label,
                    f"{name} is used for both training and evaluation"
                    if name == other
                    else f"{name} is used for evaluation, and shares rows with {other}, which is trained on",
                    "name other rows, or write `data(holdout=5%)` instead",
                    (same.label,),
                )
                break
            yield from _shared_rows(spec, one.label, source)
    split = spec.get("eval.split")
    for source in spec.data if isinstance(split, str) else ():
        if source.path is not None and not source.parts:
            continue  # the rule XP551 reports that a file has no splits
        if not stored_rows(evolve(source, split=split)).isdisjoint(stored_rows(source)):
            yield Finding(
                spec.location("eval.split", "trained on"),
                f"`{split}` is used for both training and evaluation",
                "name another split, or write `data(holdout=5%)`",
                (source.label,),
            )
            return


def _shared_rows(spec: Spec, label: Label, source: DataSource) -> Iterator[Finding]:
    """Yield a finding if an evaluation file shares rows with a training file. A file is not compared if the run reads
    only a part of it.
    """
    # imported only here, because most specs have no evaluation data
    from xpc.compiler.data import rows

    own = None if _partial(source) else rows.survey(source)
    for other in spec.data if own is not None else ():
        trained = None if _partial(other) or not _comparable(source, other) else rows.survey(other)
        share = 0.0 if own is None or trained is None else own.shared(trained)
        if own is not None and trained is not None and share:
            exact = max(len(own.sketch), len(trained.sketch)) < SKETCH
            many = f"{len(own.sketch) * share:.0f} of the {len(own.sketch)}" if exact else f"about {share:.0%} of the"
            yield Finding(
                label,
                f"{many} different rows of `{source.name[:80]}` are also in `{other.name[:80]}`, which is trained on",
                "leave the shared rows out of one of the two files, or write `data(holdout=5%)` instead",
                (other.label,),
                severity="note" if share < FEW_SHARED else None,
            )
            return


def _comparable(source: DataSource, other: DataSource) -> bool:
    """Whether the digests of the rows in one file can be compared with those in another file. They can if both files
    have the same format. They can also if one has conversations and the other prompts with answers, because the digests
    of these formats contain only the texts.
    """
    texts = ("messages", "conversations", "prompt_completion")
    return source.shape == other.shape or (source.shape in texts and other.shape in texts)


def _partial(source: DataSource) -> bool:
    return any(one is not None for one in (source.take, source.limit, source.slice))


def stored_rows(source: DataSource) -> set[str]:
    """Keys that identify the rows of a source. For files, they are the SHA-256 of each file, or its path if the file is
    missing. For a dataset of the hub, the only key is its name and split.

    Two sources share rows if they have a key in common. They then read the same file or a copy of it (possibly in a
    folder), or parts of one split. Any two parts of a split overlap: each part begins with the first row, and `take`
    selects rows with the same seed.
    """
    if source.id is not None:
        return {f"{source.id.lower()} {source.config} {source.split}"}
    return {part.sha256 or normpath(part.path or "") for part in source.of_split(source.split)}


def reading(source: DataSource) -> str:
    """A text that identifies the settings by which a source's rows are read, such as `columns`. If this text is equal
    for two sources, both make the same training row from the same row.
    """
    return repr((source.kind, source.columns, source.context, source.wording))
