"""Distillation from a teacher (XP645 to XP653)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler import registry
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = chosen("method", "distill")


@rule("XP645", "no-teacher")
def no_teacher(spec: Spec) -> Iterator[Finding]:
    """Distillation needs a model to learn from.

    Today: trl 1.16 ends with AttributeError in the first step, trl 0.18 with AttributeError in the trainer's
    constructor, after the model is loaded. Source: trl 1.16 `distillation_trainer.py`, trl 0.18 `gkd_trainer.py`;
    executed.
    """
    if spec.teacher is None and "method.teacher" not in spec.wrong:
        fitting = _fitting(spec)
        yield Finding(
            spec.place("method", "needs a teacher"),
            "distillation has no teacher",
            f"write `teacher = {fitting}`" if fitting else "write `teacher = org/name`, a model of the same vocabulary",
        )


def _fitting(spec: Spec) -> str | None:
    """The smallest registered model that is larger than the student and has its family's vocabulary."""
    facts = spec.model.facts
    if facts is None:
        return None
    known = [one for one in map(registry.find_model, registry.model_names()) if one is not None]
    alike = [one for one in known if (one.vocab, one.model_type) == (facts.vocab, facts.model_type)]
    larger = [one for one in alike if one.params > facts.params]
    by_size = sorted(larger, key=lambda one: (one.params, one.alias.partition("-")[0] != facts.alias.partition("-")[0]))
    return by_size[0].alias if by_size else None


@rule("XP646", "teacher-of-another-vocabulary")
def another_vocabulary(spec: Spec) -> Iterator[Finding]:
    """A teacher's probabilities are compared with the student's token by token, so both have the same tokens.

    The sizes are those of config.json, where paddings count: qwen2.5 has 151,936 rows up to 3B, and 152,064 from 7B on.
    Whether the tokens themselves are the same is seen at the start of the run, from the tokenizers. Today: ValueError
    after both models are loaded (trl 1.16), or RuntimeError in the first step (trl 0.18). Source: trl 1.16
    `distillation_trainer.py`, trl 0.18 `gkd_trainer.py` (`generalized_jsd_loss`); executed.
    """
    student, teacher = spec.model.facts, None if spec.teacher is None else spec.teacher.facts
    if student is None or teacher is None or student.vocab == teacher.vocab:
        return
    fitting = _fitting(spec)
    yield Finding(
        spec.place("method.teacher", f"a vocabulary of {teacher.vocab:,} tokens"),
        f"`{spec.model.name}` has a vocabulary of {student.vocab:,} tokens, and its teacher another",
        f"write `teacher = {fitting}`" if fitting else "name a teacher of the same vocabulary",
        (spec.model.label,),
        replace=f"teacher = {fitting}" if fitting else None,
    )


@rule("XP647", "completions-of-nobody")
def completions_of_nobody(spec: Spec) -> Iterator[Finding]:
    """With `lmbda` below 1 some batches are learned from completions of the rows, and rows of prompts have none.

    Today: KeyError for `messages`, or an empty completion whose loss is nan, in the first such batch. Source: trl 0.18
    `gkd_trainer.py` (`training_step`), `trainer/utils.py` (`DataCollatorForChatML`); executed.
    """
    share = spec.real("method.lmbda")
    if share < 1 and "lmbda" in spec.fields() and any(one.shape == "prompt" for one in spec.data):
        alone = next(one for one in spec.data if one.shape == "prompt")
        yield Finding(
            spec.place("method.lmbda", f"{1 - share:.0%} of the batches"),
            "rows of prompts alone have no completions to learn from",
            write("lmbda = 1", ", or `data(format=prompt_completion)` for rows that have them"),
            (alone.label,),
        )


@rule("XP648", "no-share-of-the-rows")
def no_share(spec: Spec) -> Iterator[Finding]:
    """trl 1.16 learns from completions that the student has just written, and from no others: `lmbda` is 1.

    Today: TypeError, an unexpected argument, when the arguments are built. Source: trl 1.16 `distillation_config.py`;
    executed.
    """
    if spec.real("method.lmbda") != 1 and "lmbda" not in spec.fields():
        yield Finding(
            spec.place("method.lmbda", "the share of the student's own completions"),
            f"distillation of {spec.stack.name} learns from the student's completions alone",
            write("lmbda = 1"),
            (spec.label("target", "the target"),),
        )


@rule("XP649", "divergence-out-of-range")
def divergence_out_of_range(spec: Spec) -> Iterator[Finding]:
    """`beta` lies between the forward Kullback-Leibler divergence (0) and the reverse one (1).

    Today: ValueError when the arguments are built. Source: trl 1.16 `distillation_config.py`, trl 0.18
    `gkd_config.py`; executed.
    """
    beta = spec.real("method.beta")
    if not 0 <= beta <= 1:
        yield Finding(
            spec.place("method.beta", "from 0 (forward KL) to 1 (reverse KL)"),
            f"`beta = {beta:g}` is not a divergence",
            write("beta = 1"),
        )


@rule("XP650", "student-that-is-not-gathered")
def not_gathered(spec: Spec) -> Iterator[Finding]:
    """The trainer of trl 0.18 generates with the weights that a process has, and FSDP leaves it a piece of them.

    ZeRO-3 is gathered, and trl 1.16 gathers both. Today: RuntimeError about the shape of a weight, at the first
    completion. Source: trl 0.18 `gkd_trainer.py`, `models/utils.py` (`unwrap_model_for_generation`).
    """
    if spec.sharded_by_fsdp and not spec.stack.facts.distill_gathers:
        yield Finding(
            spec.place("strategy", "the student's weights are spread"),
            f"the student of {spec.stack.name} cannot generate under {spec.text('strategy')}",
            "write `strategy zero3`",
            (spec.label("method", "the method"), spec.label("target", "the target")),
            replace="zero3" if spec.written("strategy") else None,
        )


@rule("XP651", "liger-in-the-place-of-the-loss")
def liger_loss(spec: Spec) -> Iterator[Finding]:
    """Liger's loss is not the one that is written, in a trainer that takes it: it divides by other tokens.

    Elsewhere Liger's kernels are in the layers, and the loss stays as it is. Source: trl 0.24 `gkd_trainer.py`
    (`use_liger_gkd_loss`).
    """
    if spec.flag("memory.liger") and spec.stack.facts.distill_liger == "loss":
        yield Finding(
            spec.place("memory.liger", "another loss"),
            f"Liger takes the place of the loss in distillation of {spec.stack.name}",
            "leave `liger` out",
            (spec.label("method", "the method"),),
        )


@rule("XP652", "tokens-that-the-teacher-lacks")
def tokens_that_the_teacher_lacks(spec: Spec) -> Iterator[Finding]:
    """Tokens that are added to the student are none of the teacher's, who cannot say how likely they are.

    Today: where the vocabulary grows, as for a teacher of another one; where it has room, the student learns what the
    teacher has left in rows that it never trained. Source: trl 1.16 `distillation_trainer.py`, trl 0.18
    `gkd_trainer.py`.
    """
    if spec.names("model.tokens"):
        yield Finding(
            spec.place("model.tokens", "the teacher has no such tokens"),
            "tokens are added that the teacher does not know",
            "leave `tokens` out",
            (spec.label("method.teacher", "the teacher"),),
        )


@rule("XP653", "adapters-of-a-student-under-zero3")
def adapters_under_zero3(spec: Spec) -> Iterator[Finding]:
    """A student with adapters generates, and ZeRO-3 before deepspeed 0.19 then misses modules in what it has recorded.

    Today: IndexError "pop from an empty deque" in the first step. Source: deepspeed 0.18.2 and 0.16.8
    `zero/partitioned_param_coordinator.py` (`record_parameters`); executed on both, and all weights train.
    """
    if spec.zero_stage == 3 and spec.lora and not spec.stack.facts.distill_adapters_under_zero3:
        yield Finding(
            spec.place("strategy", "misses modules once the student has generated"),
            f"adapters of a student cannot be trained under zero3 of {spec.stack.name}",
            write("zero2") if spec.written("strategy") else "write `strategy zero2`",
            (spec.label("method", "the method"), spec.label("target", "the target")),
        )
