"""Rules about methods and settings that a target or a model family does not support (XP127, XP644)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.schema import BY_PATH, TABLE
from xpc.compiler.rules.core.conditions import any_of, has_value, not_chosen
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import CALLED, Spec
from xpc.compiler.stacks import Stack, able

WHEN = any_of(not_chosen("method", "sft"), has_value("method.loss"))

WITHOUT_ARGUMENT = ("method.max_prompt", "method.rewards", "method.teacher", "method.lmbda")
"""Settings for which the method's configuration class needs no argument: the runtime implements the setting, or another
rule checks it.
"""

INSTEAD = {
    "method.rpo": "write `loss = [sigmoid, sft(weight={:g})]`",
    "method.reference_free": "leave `reference_free` out: this target always compares with a reference",
}


@rule("XP127", "method-not-in-the-target", reads=(*(row.path for row in TABLE if row.methods and row.args), *CALLED))
def method_of_the_target(spec: Spec) -> Iterator[Finding]:
    """The target must have the method, and the method's configuration class must have an argument for each of the
    method's settings in the spec. For example, trl-0.18 has no rloo with reward functions, no choice of loss in sft,
    and only one dpo loss at a time. trl-1.16 has neither `rpo` nor `reference_free`, and no `padding_free` for dpo. On
    trl-0.24, a reward model cannot be trained under ZeRO-3.

    Why it is bad: a setting without an argument in the configuration class cannot take effect. On trl-0.24,
    transformers does not initialize the score head of a reward model under ZeRO-3, so its weights are arbitrary numbers
    (losses of 1e29).

    Without this rule: for a setting without such an argument, TypeError is raised while the training arguments are
    built, or the setting is silently ignored. trl 1.16 warns about `padding_free` for dpo, and pads the rows anyway.

    Source: the configuration classes of trl 0.18 and 1.16, `dpo_trainer.py` and `grpo_trainer.py`; transformers 4.57
    `modeling_utils.py` (`_initialize_missing_keys`), confirmed by running it.
    """
    method, target = spec.text("method"), spec.stack
    related = (spec.label("target", "the target"),)
    reason = target.refused(method)
    if reason is not None:
        help = f"write `target {able(lambda one: one.refused(method) is None)}`"
        yield Finding(spec.location("method"), f"{target.name} has no {method}: {reason}", help, related)
        return
    yield from _missing(spec)
    if spec.calls_tools and not _has_tools(target):
        location = spec.location("method.tools" if spec.get("method.tools") else "method.environment")
        help = f"write `target {able(_has_tools)}`"
        yield Finding(location, f"grpo on {target.name} calls no tools and has no environments", help, related)
    losses = spec.weighted("method.loss")
    several = len(losses) > 1 or any(one.weight is not None for one in losses)
    if method == "dpo" and several and not target.facts.dpo_loss_list:
        yield Finding(
            spec.location("method.loss"),
            f"dpo on {target.name} accepts one loss at a time",
            f"write `loss = {losses[0].name}`, or `target {able(lambda one: one.facts.dpo_loss_list)}`",
            related,
        )
    if spec.get("method.scale_rewards") == "batch" and not _scales_batches(target):
        yield Finding(
            spec.location("method.scale_rewards"),
            f"grpo on {target.name} scales rewards by the standard deviation of their group, or not at all",
            f"write `scale_rewards = group`, or `target {able(_scales_batches)}`",
            related,
        )
    if method == "reward" and spec.zero_stage == 3 and not target.facts.zero3_draws_scores:
        yield Finding(
            spec.location("strategy", "leaves new weights uninitialized"),
            f"the score head of a reward model is not initialized under zero3 on {target.name}",
            f"write `strategy zero1`, or `target {able(lambda one: one.facts.zero3_draws_scores)}`",
            (*related, spec.label("method", "the method")),
        )
    if method == "dpo" and spec.flag("batch.padding_free") and not target.facts.dpo_padding_free:
        yield Finding(
            spec.location("batch.padding_free"),
            f"`padding_free` does nothing for dpo on {target.name}, which warns and pads the rows",
            "leave `padding_free` out",
            related,
        )


def _scales_batches(stack: Stack) -> bool:
    """Whether grpo can divide rewards by the standard deviation of a complete batch. grpo of trl 0.18 cannot, because
    its argument is a boolean.
    """
    return stack.fields(stack.config("grpo"))["scale_rewards"].type != "bool"


def _has_tools(stack: Stack) -> bool:
    """Whether grpo of the stack lets the model call tools while it generates."""
    return "max_tool_calling_iterations" in stack.fields(stack.config("grpo"))


def _missing(spec: Spec) -> Iterator[Finding]:
    """Report settings in the spec for which the method's configuration class has no argument."""
    known, method, target = spec.fields(), spec.text("method"), spec.stack
    for path in spec.values:
        row = BY_PATH[path]
        if method not in row.methods or not row.args or path in WITHOUT_ARGUMENT or not spec.written(path):
            continue
        if spec.get(path) is not False and not any((target.rename(name) or name) in known for name in row.args):
            help = INSTEAD.get(path, f"leave `{row.name}` out, or write another `target`").format(spec.get(path))
            message = f"{method} on {target.name} has no `{row.name}`"
            yield Finding(
                spec.location(path, f"no `{row.args[0]}`"), message, help, (spec.label("target", "the target"),)
            )


@rule("XP644", "family-without-scores")
def family_without_scores(spec: Spec) -> Iterator[Finding]:
    """A reward model needs a family with a class for sequence classification. If the spec sets `trust_remote_code`,
    this rule does not check the family, because the model's own code may define such a class.

    Why it is bad: a family without a class for sequence classification gives no score.

    Without this rule: ValueError, "Unrecognized configuration class", when the model is loaded.

    Source: transformers 5.23 and 4.52.3 `MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING`; confirmed by running it.
    """
    known = spec.stack.family(spec.model.model_type)
    wrong = known is not None and not known.scores and not spec.flag("model.trust_remote_code")
    if spec.get("method") == "reward" and wrong:
        yield Finding(
            spec.model.label,
            f"transformers on {spec.stack.name} has no {spec.model.model_type} class with a score head",
            "train another family, such as `qwen2.5-3b`",
            (spec.label("method", "the method"), spec.label("target", "the target")),
        )
