"""Data: what is read and what is held out (XP50x, XP550, XP552)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xpc.compiler.data.shapes import in_words
from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import EVALUATED, Spec
from xpc.compiler.spec.resources import DataSource
from xpc.compiler.stacks import Stack, able

CONVERSATIONS = ("messages", "conversations")


@rule("XP501", "evaluation-without-data")
def evaluation_without_data(spec: Spec) -> Iterator[Finding]:
    """Evaluation needs rows: a held-out share of the data, a split of it, or data of its own.

    Today: ValueError after the training data is tokenized. Source: transformers 5.23 `trainer.py`; executed.
    """
    wrong = spec.wrong.intersection(EVALUATED)
    if spec.amount("eval.every") != NEVER and not spec.evaluates and not wrong:
        yield Finding(
            spec.place("eval.every", "on which rows?"),
            "evaluation has no data",
            'write `holdout = 5%`, `eval(split=test)` or `eval(data="eval.jsonl")`',
        )


@rule("XP502", "holdout-never-used", "warning")
def holdout_never_used(spec: Spec) -> Iterator[Finding]:
    """Rows that are held out and never evaluated on are only lost to training.

    The trainer is given them and never asks: nothing is said today.
    """
    never = spec.amount("eval.every") == NEVER and "eval.every" not in spec.wrong
    never = never and spec.extra_value("trl", "eval_on_start") is not True
    for path in EVALUATED:
        if spec.written(path) and never:
            yield Finding(
                spec.place(path, "never read"),
                f"`{path[5:]}` is written and nothing is evaluated",
                "write `eval(every=epoch)`",
            )


@rule("XP503", "shape-of-another-method")
def shape_of_another_method(spec: Spec) -> Iterator[Finding]:
    """sft trains on conversations, prompt and completion, or text; dpo, orpo and reward on preference pairs; kto on
    judged completions, or on pairs, which it takes apart; grpo and rloo on prompts; distill on
    prompts, with or without completions.

    Today: KeyError for the column that is missing, after the model is loaded. Source: the trainers of trl 0.18 and
    1.16.
    """
    method, legal = spec.method.name, spec.method.shapes
    for source in spec.sources:
        if source.shape in legal:
            continue
        from xpc.compiler.suggest.likely_columns import advice  # only a wrong spec pays for it

        yield Finding(
            source.label,
            f"{method} cannot {'train' if source in spec.data else 'evaluate'} on {in_words(source.shape)}",
            advice(method, source, source.label.typed * (len(spec.data) > 1)),
            (spec.label("method", "the method"),),
        )


@rule("XP505", "no-chat-template")
def no_chat_template(spec: Spec) -> Iterator[Finding]:
    """Conversations are rendered by a chat template; some base models ship none.

    Of a local model the tokenizer's own files are read. Today: ValueError while the data is tokenized. Source:
    transformers 5.23 and 4.52 `tokenization_utils_base.py` (`get_chat_template`); executed.
    """
    if spec.model.chat is not False or spec.get("model.chat_template") is not None or "data" in spec.wrong:
        return
    source = next((one for one in spec.sources if one.shape in CONVERSATIONS or one.chat), None)
    if source is not None:
        from xpc.compiler.rules.core.chat_tokens import advice  # only a wrong spec pays for it

        yield Finding(
            spec.model.label,
            f"{spec.model.name} ships no chat template, and the data is conversations",
            advice(spec),
            (source.label,),
        )


@rule("XP507", "training-on-test", "warning")
def training_on_test(spec: Spec) -> Iterator[Finding]:
    """A split called test is what others evaluate on; training on it spoils the comparison.

    Nothing looks at the names of splits today.
    """
    for source in spec.data:
        if source.split.lower().startswith("test"):
            better = "train" + source.split[4:]
            yield Finding(source.label, f"training on a split called `{source.split}`", f"write `[{better}]`")


@rule("XP508", "mixed-shapes")
def mixed_shapes(spec: Spec) -> Iterator[Finding]:
    """The parts of a mixture are concatenated, so their rows must have one shape; those of sft are made to tokens
    before.

    Conversations in either form count as one: the runtime maps from/value to messages.
    """
    if spec.text("method") == "sft":
        return
    for mixture in (spec.data, *(one.sources for one in spec.evaluated)):
        shapes = {source.kind: source for source in mixture}
        if len(shapes) < 2:
            continue
        first, second, *_ = shapes.values()
        yield Finding(
            second.label,
            f"a mixture of {in_words(first.shape)} and {in_words(second.shape)}",
            "keep rows of one shape: sft alone mixes them",
            (first.label,),
        )


def _keeps_order(stack: Stack) -> bool:
    return "train_sampling_strategy" in stack.fields()


@rule("XP509", "rows-always-shuffled")
def always_shuffled(spec: Spec) -> Iterator[Finding]:
    """trl-0.18 has no sampler that keeps the order of the rows: its Trainer draws them at random in every epoch.

    kto keeps the order there, and grpo has `shuffle_dataset`. Source: transformers 4.52 `trainer.py`
    (`_get_train_sampler`); transformers 5.23 has `train_sampling_strategy`.
    """
    ordered = _keeps_order(spec.stack) or spec.online or spec.text("method") == "kto"
    if not spec.flag("data.shuffle") and not ordered:
        yield Finding(
            spec.place("data.shuffle", "the trainer draws rows at random"),
            f"{spec.stack.name} always shuffles",
            f"leave `shuffle` out, or write `target {able(_keeps_order)}`",
            (spec.label("target", "the target"),),
        )


@rule("XP550", "two-evaluation-sets")
def two_evaluation_sets(spec: Spec) -> Iterator[Finding]:
    """Evaluation rows come from a share that is held out, from a split of the data, or from data of their own; only one
    of them is read.

    Today, silently: the holdout is evaluated and the split is never read. Other trainers refuse the pair
    (LLaMA-Factory `data_args.py`, axolotl `validation.py`). Several sets are a list, `eval(data=[easy, hard])`, and
    each is named there; a holdout has no name that a metric could carry.
    """
    ways: Mapping[Path, str] = {
        "data.holdout": "these rows are held out",
        "eval.data": "these are read",
        "eval.split": "and this split",
    }
    there = [path for path in ways if spec.get(path) is not None]
    if len(there) > 1:
        first, other = there[0], there[-1]
        yield Finding(
            spec.place(other, "would never be read" if other == "eval.split" else "and this"),
            "two sets to evaluate on",
            f"leave out `{other[5:]}`, or `{first[5:]}`",
            (spec.label(first, ways[first]),),
        )


@rule("XP552", "evaluation-on-training-rows", "warning")
def evaluation_on_training_rows(spec: Spec) -> Iterator[Finding]:
    """An evaluation split that is also trained on says how well rows are remembered.

    Today, silently: the evaluation loss follows the training loss, and nothing of it speaks of new rows.
    """
    for one in spec.evaluated:
        for source in one.sources:
            same = next((other for other in spec.data if _same(source, other)), None)
            if same is not None:
                yield Finding(
                    one.label,
                    f"`{source.name[:80]}` is evaluated on and trained on",
                    "name other rows, or write `data(holdout=5%)` instead",
                    (same.label,),
                )
                break
    split = spec.get("eval.split")
    for source in spec.data:
        if split is not None and source.id is not None and source.split == split and source.slice is None:
            yield Finding(
                spec.place("eval.split", "trained on"),
                f"`{split}` is evaluated on and trained on",
                "name another split, or write `data(holdout=5%)`",
                (source.label,),
            )
            return


def _same(one: DataSource, other: DataSource) -> bool:
    """Whether two sources are the same rows: one file or folder, or one split of a dataset."""
    if one.sha256 is not None and one.sha256 == other.sha256:
        return True
    named = (one.id, one.path, one.config, one.split, one.revision)
    whole = None in (one.slice, other.slice) or one.slice == other.slice
    return whole and named == (other.id, other.path, other.config, other.split, other.revision)
