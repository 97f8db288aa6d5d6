"""Rules for distillation from a teacher (XP645 to XP653, XP698)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler import registry
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.grammar.record import evolve

WHEN = chosen("method", "distill")


@rule("XP645", "no-teacher")
def no_teacher(spec: Spec) -> Iterator[Finding]:
    """`method distill` needs a teacher that the student learns from.

    Why it is bad: without a teacher there are no probabilities to learn, so the run fails.

    Without this rule: trl 1.16 raises AttributeError in the first step; trl 0.18 raises AttributeError in the trainer's
    constructor, after the model is loaded.

    Source: trl 1.16 `distillation_trainer.py`, trl 0.18 `gkd_trainer.py`; confirmed by running it.
    """
    if spec.teacher is None and "method.teacher" not in spec.wrong:
        fitting = _fitting(spec)
        yield Finding(
            spec.location("method", "needs a teacher"),
            "distillation has no teacher",
            f"write `teacher = {fitting}`"
            if fitting
            else "write `teacher = org/name`, a model with the same vocabulary",
        )


def _fitting(spec: Spec) -> str | None:
    """A registered model that could be the teacher, because it is larger than the student and has the student's
    vocabulary. Models of the student's series are preferred, then (for an instruct student) instruct models, then small
    models.
    """
    facts = spec.model.facts
    if facts is None:
        return None
    known = [one for one in map(registry.find_model, registry.model_names()) if one is not None]
    alike = [one for one in known if (one.vocab, one.model_type) == (facts.vocab, facts.model_type)]
    larger = [one for one in alike if one.params > facts.params]
    series = facts.alias.partition("-")[0]
    nearest = sorted(
        larger, key=lambda one: (one.alias.partition("-")[0] != series, one.chat != facts.chat, one.params)
    )
    return nearest[0].alias if nearest else None


@rule("XP646", "teacher-of-another-vocabulary")
def another_vocabulary(spec: Spec) -> Iterator[Finding]:
    """The teacher must have the student's vocabulary. This rule compares the sizes of the vocabularies in config.json,
    which include padding: qwen2.5 has 151,936 rows up to 3B, and 152,064 from 7B on. The run compares the tokenizers
    when it starts.

    Why it is bad: the teacher's probabilities are compared with the student's token by token.

    Without this rule: trl 1.16 raises ValueError after both models are loaded; trl 0.18 raises RuntimeError in the
    first step.

    Source: trl 1.16 `distillation_trainer.py`, trl 0.18 `gkd_trainer.py` (`generalized_jsd_loss`); confirmed by running
    it.
    """
    student, teacher = spec.model.facts, None if spec.teacher is None else spec.teacher.facts
    if student is None or teacher is None or student.vocab == teacher.vocab:
        return
    fitting = _fitting(spec)
    yield Finding(
        spec.location("method.teacher", f"a vocabulary of {teacher.vocab:,} tokens"),
        f"`{spec.model.name}` has a vocabulary of {student.vocab:,} tokens, and its teacher has a different one",
        "name a teacher with the same vocabulary" + (f", such as `teacher = {fitting}`" if fitting else ""),
        (spec.model.label,),
    )


@rule("XP647", "completions-of-nobody")
def prompts_without_completions(spec: Spec) -> Iterator[Finding]:
    """If distillation trains on rows that contain only prompts, `lmbda` must be 1. With an `lmbda` below 1, some
    batches are trained on completions from the data.

    Why it is bad: a row with only a prompt has no completion to learn from.

    Without this rule: the first batch of completions from the data raises KeyError for `messages`, or trains on an
    empty completion, with a loss of nan.

    Source: trl 0.18 `gkd_trainer.py` (`training_step`), `trainer/utils.py` (`DataCollatorForChatML`); confirmed by
    running it.
    """
    share = spec.real("method.lmbda")
    if share < 1 and "lmbda" in spec.fields() and any(one.shape == "prompt" for one in spec.data):
        prompts = next(one for one in spec.data if one.shape == "prompt")
        yield Finding(
            spec.location("method.lmbda", f"{1 - share:.0%} of the batches"),
            "rows with only prompts have no completions to learn from",
            write("lmbda = 1", ", or `data(format=prompt_completion)` for rows with completions"),
            (prompts.label,),
        )


@rule("XP648", "no-share-of-the-rows")
def no_share(spec: Spec) -> Iterator[Finding]:
    """On trl 1.16, `lmbda` of distillation must be 1, because this version learns only from completions that the
    student has just generated.

    Why it is bad: an `lmbda` below 1 asks for some completions from the data, and trl 1.16 never trains on these.

    Without this rule: building the arguments raises TypeError, an unexpected argument.

    Source: trl 1.16 `distillation_config.py`; confirmed by running it.
    """
    if spec.real("method.lmbda") != 1 and "lmbda" not in spec.fields():
        yield Finding(
            spec.location("method.lmbda", "the share of the student's own completions"),
            f"distillation on {spec.stack.name} learns only from the student's completions",
            write("lmbda = 1"),
            (spec.label("target", "the target"),),
        )


@rule("XP649", "divergence-out-of-range")
def divergence_out_of_range(spec: Spec) -> Iterator[Finding]:
    """In distillation, `beta` must be from 0 (forward KL divergence) to 1 (reverse KL divergence).

    Why it is bad: with a `beta` below 0 or above 1, the loss is not a divergence.

    Without this rule: building the arguments raises ValueError.

    Source: trl 1.16 `distillation_config.py`, trl 0.18 `gkd_config.py`; confirmed by running it.
    """
    beta = spec.real("method.beta")
    if not 0 <= beta <= 1:
        yield Finding(
            spec.location("method.beta", "from 0 (forward KL) to 1 (reverse KL)"),
            f"`beta = {beta:g}` is outside of 0 to 1",
            write("beta = 1"),
        )


@rule("XP650", "student-that-is-not-gathered")
def not_gathered(spec: Spec) -> Iterator[Finding]:
    """On trl 0.18, a student cannot be trained under FSDP, because it could not generate with sharded weights. Before
    the student generates, trl 0.18 gathers the weights under ZeRO-3 only; trl 1.16 also gathers them under FSDP.

    Why it is bad: under FSDP, each process has only a shard of the weights, with which it cannot generate.

    Without this rule: the first completion raises RuntimeError about the shape of a weight.

    Source: trl 0.18 `gkd_trainer.py`, `models/utils.py` (`unwrap_model_for_generation`).
    """
    if spec.sharded_by_fsdp and not spec.stack.facts.distill_gathers:
        yield Finding(
            spec.location("strategy", "shards the student's weights"),
            f"the student cannot generate under {spec.text('strategy')} on {spec.stack.name}",
            "write `strategy zero3`",
            (spec.label("method", "the method"), spec.label("target", "the target")),
            replace="zero3" if spec.written("strategy") else None,
        )


@rule("XP651", "liger-in-the-place-of-the-loss")
def liger_loss(spec: Spec) -> Iterator[Finding]:
    """`liger` cannot be used in distillation on trl 0.24, because trl 0.24 then replaces the loss by Liger's loss,
    which has other values. On the other stacks, `liger` replaces only layers by kernels, and the loss is unchanged.

    Why it is bad: Liger's loss divides by a different number of tokens, so it differs from the loss of distillation.

    Without this rule: the run trains on Liger's loss.

    Source: trl 0.24 `gkd_trainer.py` (`use_liger_gkd_loss`).
    """
    if spec.flag("memory.liger") and spec.stack.facts.distill_liger == "loss":
        yield Finding(
            spec.location("memory.liger", "a different loss"),
            f"Liger replaces the loss of distillation on {spec.stack.name}",
            "leave `liger` out",
            (spec.label("method", "the method"),),
        )


@rule("XP652", "tokens-that-the-teacher-lacks")
def tokens_that_the_teacher_lacks(spec: Spec) -> Iterator[Finding]:
    """A student cannot have added tokens, because its teacher does not have them.

    Why it is bad: the teacher gives no probability for an added token.

    Without this rule: if the student's vocabulary grows, the run stops with an error, because the teacher's vocabulary
    is smaller. If the models' vocabularies have unused rows, added tokens take these rows. Then nothing is reported,
    and the student learns from rows of the teacher that were never trained.

    Source: trl 1.16 `distillation_trainer.py`, trl 0.18 `gkd_trainer.py`.
    """
    if spec.names("model.tokens"):
        yield Finding(
            spec.location("model.tokens", "the teacher has no such tokens"),
            "the spec adds tokens that the teacher does not know",
            "leave `tokens` out",
            (spec.label("method.teacher", "the teacher"),),
        )


@rule("XP653", "adapters-of-a-student-under-zero3")
def adapters_under_zero3(spec: Spec) -> Iterator[Finding]:
    """Before deepspeed 0.19, a student with adapters cannot be trained under ZeRO-3.

    Why it is bad: deepspeed before 0.19 records the order in which modules run. When the student generates during
    training, modules are missing from that order.

    Without this rule: IndexError "pop from an empty deque" in the first step.

    Source: deepspeed 0.18.2 and 0.16.8 `zero/partitioned_param_coordinator.py` (`record_parameters`); confirmed by
    running it on both versions. A student without adapters trains on both.
    """
    if spec.zero_stage == 3 and spec.lora and not spec.stack.facts.distill_adapters_under_zero3:
        yield Finding(
            spec.location("strategy", "DeepSpeed loses the order of modules when the student generates"),
            f"a student's adapters cannot be trained under zero3 on {spec.stack.name}",
            write("zero2") if spec.written("strategy") else "write `strategy zero2`",
            (spec.label("method", "the method"), spec.label("target", "the target")),
        )


@rule("XP698", "teacher-no-better-than-the-student", "warning")
def no_better(spec: Spec) -> Iterator[Finding]:
    """The teacher should not be the student's own model, and should be larger than the student.

    Why it is bad: a student that already gives its teacher's probabilities has a gradient of 0. A smaller teacher makes
    a better student worse. Usually, student and teacher are swapped in the spec.

    Without this rule: nothing is reported.

    Source: trl 1.16 `distillation_trainer.py` (the divergence of equal distributions is 0); confirmed by running it.
    """
    teacher, student = spec.teacher, spec.model
    if teacher is None:
        return
    location = spec.location("method.teacher")
    if (teacher.id, teacher.path, teacher.revision) == (student.id, student.path, student.revision):
        yield Finding(
            evolve(location, text="the student itself"),
            "the teacher is the student: there is nothing to learn",
            "name a larger model with the same vocabulary",
            (student.label,),
        )
    elif teacher.facts is not None and student.facts is not None and teacher.facts.params < student.facts.params:
        sizes = f"{teacher.facts.params / 1e9:.1f} B and {student.facts.params / 1e9:.1f} B parameters"
        yield Finding(
            evolve(location, text=sizes),
            "the teacher is smaller than the student",
            f"write `train {teacher.name[:60]} on ...` with `teacher = {student.name[:60]}`, if the names are swapped",
            (student.label,),
        )
