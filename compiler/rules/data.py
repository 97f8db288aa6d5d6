"""Data against the method (XP5xx) and losses (XP6xx)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.kinds import NEVER
from xpc.compiler.rules.rule import Finding, rule
from xpc.compiler.spec import Spec

CONVERSATIONS = ("messages", "conversations")


@rule("XP501", "evaluation-without-data")
def evaluation_without_data(spec: Spec) -> Iterator[Finding]:
    """Evaluation needs rows: a held-out share of the data, or a split of its own.

    Today: ValueError after the training data is tokenized. Source: transformers 5.23 `trainer.py`; executed.
    """
    has_rows = spec.get("data.holdout") is not None or spec.get("eval.split") is not None
    if spec.amount("eval.every") != NEVER and not has_rows:
        yield Finding(
            spec.place("eval.every", "on which rows?"),
            "evaluation has no data",
            "write `holdout = 5%`, or `eval(split=test)`",
        )


@rule("XP502", "holdout-never-used", "warning")
def holdout_never_used(spec: Spec) -> Iterator[Finding]:
    """Rows that are held out and never evaluated on are only lost to training."""
    for path in ("data.holdout", "eval.split"):
        if spec.written(path) and spec.amount("eval.every") == NEVER:
            yield Finding(
                spec.place(path, "never read"),
                f"`{path[5:]}` is written and nothing is evaluated",
                "write `eval(every=epoch)`",
            )


@rule("XP503", "shape-of-another-method")
def shape_of_another_method(spec: Spec) -> Iterator[Finding]:
    """sft trains on conversations, prompt and completion, or text; preference pairs are for dpo and its kin,
    prompts without an answer for reinforcement.

    Source: trl 1.16 `sft_trainer.py`.
    """
    if spec.text("method") != "sft":
        return
    for source in spec.data:
        if source.shape in ("preference", "prompt"):
            what = "preference pairs" if source.shape == "preference" else "prompts alone"
            yield Finding(
                source.label,
                f"sft cannot train on {what}",
                "name another dataset, or a `format`",
                (spec.label("method", "the method"),),
            )


@rule("XP504", "loss-mask-without-turns")
def loss_mask(spec: Spec) -> Iterator[Finding]:
    """`assistant_only` needs conversations and `completion_only` prompts with completions.

    Today `completion_only` on conversations masks nothing and trains on everything, silently; `assistant_only` on text
    is a ValueError after loading. Source: trl 1.16 `sft_trainer.py`; executed.
    """
    for path, legal, what in (
        ("method.assistant_only", CONVERSATIONS, "conversations"),
        ("method.completion_only", ("prompt_completion",), "prompts with completions"),
    ):
        if spec.flag(path):
            for source in spec.data:
                if source.shape not in legal:
                    yield Finding(
                        spec.place(path, f"needs {what}"),
                        f"`{path[7:]}` on rows of {source.shape}",
                        f"leave `{path[7:]}` out",
                        (source.label,),
                    )


@rule("XP505", "no-chat-template")
def no_chat_template(spec: Spec) -> Iterator[Finding]:
    """Conversations are rendered by a chat template; some base models ship none.

    Today: ValueError while the data is tokenized. Source: transformers 5.23 `tokenization_utils_base.py`; executed.
    """
    facts = spec.model.facts
    if (
        facts is None
        or spec.model.known_from != "registry"
        or facts.chat
        or spec.get("model.chat_template") is not None
    ):
        return
    source = next((one for one in spec.data if one.shape in CONVERSATIONS), None)
    if source is not None:
        yield Finding(
            spec.model.label,
            f"{facts.alias} ships no chat template, and the data is conversations",
            'write `chat_template = file("chatml.jinja")` with a template of your own',
            (source.label,),
        )


@rule("XP506", "template-without-generation-marks")
def template_marks(spec: Spec) -> Iterator[Finding]:
    """`assistant_only` finds the assistant's tokens by `{% generation %}` marks in the chat template.

    Today: ValueError, or a RuntimeError on the first row without marks. Source: trl 1.16 `chat_template_utils.py`;
    executed.
    """
    name = spec.get("model.chat_template")
    if (
        spec.flag("method.assistant_only")
        and isinstance(name, str)
        and b"generation" not in spec.bundled.get(name, b"")
    ):
        yield Finding(
            spec.place("model.chat_template", "has no {% generation %} marks"),
            "`assistant_only` needs a template that marks the assistant's turns",
            "put {% generation %} ... {% endgeneration %} around the assistant's text",
            (spec.label("method.assistant_only", "asked for here"),),
        )


@rule("XP507", "training-on-test", "warning")
def training_on_test(spec: Spec) -> Iterator[Finding]:
    """A split called test is what others evaluate on; training on it spoils the comparison."""
    for source in spec.data:
        if source.split.lower().startswith("test"):
            better = "train" + source.split[4:]
            yield Finding(source.label, f"training on a split called `{source.split}`", f"write `[{better}]`")


@rule("XP508", "mixed-shapes")
def mixed_shapes(spec: Spec) -> Iterator[Finding]:
    """The parts of a mixture are concatenated, so their rows must have one shape.

    Conversations in either form count as one: the runtime maps from/value to messages.
    """
    shapes = {("messages" if s.shape in CONVERSATIONS else s.shape): s for s in spec.data}
    if len(shapes) > 1:
        first, second, *_ = shapes.values()
        yield Finding(
            second.label, f"a mixture of {first.shape} and {second.shape}", "keep rows of one shape", (first.label,)
        )


@rule("XP601", "setting-not-in-the-target")
def method_target(spec: Spec) -> Iterator[Finding]:
    """trl-0.18 has no assistant-only loss, always shuffles, and loses the completion mask when it packs or flattens.

    Source: trl 0.18 `sft_config.py`, `sft_trainer.py`.
    """
    related = (spec.label("target", "the target"),)
    if spec.flag("method.assistant_only") and not spec.target.facts["assistant_only_loss"]:
        yield Finding(
            spec.place("method.assistant_only"),
            f"{spec.target.name} has no assistant-only loss",
            "write `target trl-1.16`",
            related,
        )
    if not spec.flag("data.shuffle") and "train_sampling_strategy" not in spec.target.fields():
        yield Finding(
            spec.place("data.shuffle", "the trainer draws rows at random"),
            f"{spec.target.name} always shuffles",
            "leave `shuffle` out, or write `target trl-1.16`",
            related,
        )
    conflicts = spec.target.facts["completion_only_conflicts"]
    if spec.flag("method.completion_only") and isinstance(conflicts, list):
        paths = {"packing": "batch.packing", "padding_free": "batch.padding_free", "liger": "memory.liger"}
        for name in conflicts:
            if spec.flag(paths.get(str(name), "")):
                yield Finding(
                    spec.place(paths[str(name)]),
                    f"{spec.target.name} drops the completion mask with `{name}`",
                    f"leave `{name}` out, or write `target trl-1.16`",
                    (spec.label("method.completion_only", "asked for here"), *related),
                )


RULES = (
    evaluation_without_data,
    holdout_never_used,
    shape_of_another_method,
    loss_mask,
    no_chat_template,
    template_marks,
    training_on_test,
    mixed_shapes,
    method_target,
)
