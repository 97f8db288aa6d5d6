"""Rules for methods that generate completions during training (XP439, XP665, XP666, XP673, XP675, XP676,
XP697)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from xpc.compiler.data.row_counts import available
from xpc.compiler.language.methods.definition import generates_itself
from xpc.compiler.language.schema import path_of
from xpc.compiler.language.setting import FlagPath
from xpc.compiler.plan.divisors import largest
from xpc.compiler.rules.core.conditions import generates
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = generates
SAMPLING = "every completion of a prompt is the same, and so is its reward"


@rule("XP673", "seed-of-the-last-process")
def seeds(spec: Spec) -> Iterator[Finding]:
    """`seed` plus the rank of the last process must be below 2^32, because every process generates with the seed `seed`
    + its rank. Trainers that do not generate use the same seed in all processes.

    Why it is bad: numpy accepts only seeds below 2^32.

    Without this rule: the processes whose seed is too large end with ValueError in the trainer's constructor, and the
    other processes wait for them.

    Source: accelerate 1.15 and 1.4 `utils/random.py` (`set_seed`, `device_specific`), called by trl 1.16 and 0.18;
    confirmed by running it.
    """
    last = spec.integer("seed") + spec.hardware.world - 1
    if last >= 2**32:
        yield Finding(
            spec.location("seed", f"{spec.integer('seed')} + {spec.hardware.world - 1} = {last}"),
            "the seed of the last process would be 2^32 or more",
            "write `seed 42`",
            (spec.label("hardware", "the processes"),),
        )


@rule("XP675", "recomputed-otherwise-after-generation")
def reentrant_after_generation(spec: Spec) -> Iterator[Finding]:
    """On trl 0.24, methods that generate need reentrant gradient checkpointing: the trainer switches checkpointing off
    while it generates, and then always switches reentrant checkpointing on.

    Why it is bad: under reentrant checkpointing, a layer gets no gradient if its input has `requires_grad = False`. The
    input has this value if everything before the layer is frozen, for example the embeddings of an adapter's base.

    Without this rule: RuntimeError "does not require grad" in the first step with `freeze` or `qlora`; otherwise a spec
    that asks for non-reentrant checkpointing silently gets the reentrant kind.

    Source: trl 0.24 `models/utils.py` (`unwrap_model_for_generation`); confirmed by running it.
    """
    path: FlagPath = "memory.checkpointing.reentrant"
    if spec.reentrant_after_generation and spec.flag("memory.checkpointing") and not spec.flag(path):
        yield Finding(
            spec.location(path, "only until the first completions"),
            f"{spec.stack.name} switches to reentrant checkpointing after it generates",
            write("reentrant = true", ", or `memory(checkpointing=false)`"),
            (spec.label("method", "generates completions"),),
        )


@rule("XP676", "completions-without-a-cache")
def without_a_cache(spec: Spec) -> Iterator[Finding]:
    """On trl 0.18, some families cannot use gradient checkpointing in a method that generates: trl 0.18 keeps
    checkpointing on while it generates, and then the layers of these families do not use the cache of keys and values.

    Why it is bad: in each step of generation, the model gets only the newest token, and its layers should read the
    earlier tokens from the cache. In layers that ignore the cache, the newest token attends only to itself.

    Without this rule: nothing is reported, and completions do not depend on their prompts. Two families raise
    RuntimeError at the first completion: gpt_bigcode, and opt with `attn = eager`. Later versions of trl switch
    checkpointing off while they generate.

    Source: trl 0.18 `models/utils.py` (`unwrap_model_for_generation`), transformers 4.52.3 `models/opt/modeling_opt.py`
    and those of the other families; confirmed by running it for each family.
    """
    path: FlagPath = "memory.checkpointing"
    recomputes = spec.method.grouped and generates_itself(spec.method, spec.get) and spec.flag(path)
    if recomputes and spec.model.model_type in spec.stack.facts.recomputed_generation:
        other = able(lambda one: spec.model.model_type not in one.facts.recomputed_generation)
        yield Finding(
            spec.location(path, "no cache during generation"),
            f"{spec.model.model_type} does not see its prompt when {spec.stack.name} generates with recomputation on",
            f"write `memory(checkpointing=false)`, or `target {other}`",
            (spec.model.label, spec.label("method", "generates completions")),
        )


@rule("XP439", "evaluation-of-two-passes-under-zero3")
def evaluated_twice(spec: Spec) -> Iterator[Finding]:
    """Before DeepSpeed 0.19, a method that scores its completions twice cannot be evaluated under ZeRO-3 with
    accumulation. rloo scores its completions twice, and so does grpo if `iterations` is above 1.

    Why it is bad: DeepSpeed records the order in which one forward pass uses the sharded weights, and fetches them in
    this order in later passes. With accumulation, the second scoring of completions uses another order.

    Without this rule: RuntimeError "tracing error" in the first evaluation.

    Source: trl 0.24 `rloo_trainer.py`, trl 0.24 and 0.18 `grpo_trainer.py` (`old_per_token_logps`), deepspeed 0.18.2
    and 0.16.8 `zero/partitioned_param_coordinator.py`; confirmed by running it.
    """
    facts = spec.stack.facts
    several = (spec.get("method.iterations") or 1) > 1
    twice = generates_itself(spec.method, spec.get) and (spec.method.scores_twice or several)
    accumulates = spec.zero_stage == 3 and spec.integer("batch.accum") > 1
    if twice and spec.evaluates and accumulates and not facts.zero3_evaluates_twice:
        other = able(lambda one: one.facts.zero3_evaluates_twice)
        yield Finding(
            spec.location("method.iterations" if several else "method", "scores completions twice"),
            f"{spec.text('method')} cannot be evaluated under zero3 on {spec.stack.name}",
            f"leave `eval` out, or write `strategy zero1`, or `target {other}`",
            (spec.label("strategy", "the strategy"), spec.label("batch.accum", "accumulates")),
        )


@rule("XP665", "frozen-sampling")
def frozen_sampling(spec: Spec) -> Iterator[Finding]:
    """The settings of sampling, such as `temperature` and `top_k`, must allow more than one completion of a prompt.

    Why it is bad: equal completions get equal rewards, and nothing is learned.

    Without this rule: a temperature or repetition penalty of 0 raises ValueError when the first completions are
    sampled; `top_k = 1`, `top_p = 0` and `min_p = 1` keep one token and silently give equal completions.

    Source: transformers 5.23 and 4.52 `generation/logits_process.py`; confirmed by running it.
    """
    for name, wrong, better, text in (
        ("temperature", 0, "1", "sampling divides by it"),
        ("repetition_penalty", 0, "1", "sampling divides by it"),
        ("top_k", 1, "50", SAMPLING),
        ("top_p", 0, "0.95", SAMPLING),
        ("min_p", 1, "0.05", SAMPLING),
    ):
        path = path_of(f"method.{name}")
        value = spec.get(path)
        if spec.written(path) and isinstance(value, int | float) and value == wrong:
            yield Finding(
                spec.location(path, text),
                f"`{name} = {value:g}` leaves nothing to sample",
                write(f"{name} = {better}"),
            )


@rule("XP666", "fewer-prompts-than-a-round")
def few_prompts(spec: Spec) -> Iterator[Finding]:
    """The data must have at least as many prompts as one round of generation uses: the number of completions in a
    round, divided by `generations`. This rule can count only the rows of local files, and sources with a `take`.

    Why it is bad: prompts that do not fill a round are dropped, so too few prompts train nothing.

    Without this rule: nothing is reported; the sampler yields no batch, and the run ends without a step.

    Source: trl 1.16 `trainer/utils.py` and trl 0.18 `grpo_trainer.py` (`RepeatSampler`); confirmed by running it.
    """
    if spec.method.name == "distill" and not spec.stack.facts.distill_rounds:
        return
    if not any(source.sha256 is not None or source.parts or source.take for source in spec.data):
        return

    total = 0
    for source in spec.data:
        found = available(source)
        if found is None or spec.get("data.holdout") is not None:
            return
        total += found
    rounds, group = spec.get("method.steps_per_generation"), spec.get("method.generations")
    steps = rounds if isinstance(rounds, int) else spec.integer("batch.accum")
    parts = spec.integer("batch.micro"), spec.hardware.world, steps
    made = prod(parts)
    need = made // group if isinstance(group, int) else made
    if total < need:
        enough = made // largest(total, *parts) if total and group else None
        fewer = "write a smaller `gbs`, or add prompts" if total else "add prompts"
        yield Finding(
            spec.data[0].label,
            f"one round of generation takes {need} prompts, and the data has {total}",
            f"write `generations = {enough}`, or a smaller `gbs`" if enough else fewer,
            (spec.label("batch.gbs", f"{made} completions a round"), spec.label("method.generations")),
        )


MOST_UPDATES = 64
"""A run is reported if it takes more optimizer steps than this on the same completions. Published runs take 1 to 16
steps.
"""


@rule("XP697", "completions-of-an-old-model", "warning")
def old_completions(spec: Spec) -> Iterator[Finding]:
    """The completions of one round of generation should not be used for many optimizer steps. The number of these steps
    is `steps_per_generation / accum x iterations`.

    Why it is bad: the completions come from the model before the first step. After many steps on the same completions,
    they are far from what the model would write, the importance ratios are clipped, and the gradient vanishes or
    misleads.

    Without this rule: nothing is reported.

    Source: trl 1.16 `grpo_trainer.py` (`steps_per_generation`, `num_iterations`); GSPO (arXiv:2507.18071) uses four
    steps, DAPO (arXiv:2503.14476) sixteen.
    """
    rounds, passes = spec.get("method.steps_per_generation"), spec.get("method.iterations") or 1
    if not spec.method.grouped or not isinstance(rounds, int) or not isinstance(passes, int):
        return
    updates = rounds / spec.integer("batch.accum") * passes
    if updates > MOST_UPDATES:
        yield Finding(
            spec.location("method.steps_per_generation" if rounds > 1 else "method.iterations", f"{updates:g} steps"),
            f"{updates:g} optimizer steps are taken on completions of the same model",
            write(f"steps_per_generation = {4 * spec.integer('batch.accum')}"),
            (spec.label("batch.accum", "micro-batches in a step"), spec.label("method.iterations")),
        )
