"""Methods whose model generates completions while it trains (XP439, XP665, XP666, XP673, XP675, XP676)."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from xpc.compiler.language.methods.definition import generates_itself
from xpc.compiler.language.schema import path_of
from xpc.compiler.rules.core.conditions import generates
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

WHEN = generates
SAMPLING = "the same completion every time, and no reward stands out"


@rule("XP673", "seed-of-the-last-process")
def seeds(spec: Spec) -> Iterator[Finding]:
    """Every process generates with a seed of its own, `seed` and its number, and numpy takes seeds below 2^32.

    Today: ValueError in the trainer's constructor, in the last processes, while the first wait for them. The trainers
    that generate nothing use one seed. Source: accelerate 1.15 and 1.4 `utils/random.py` (`set_seed`,
    `device_specific`), which trl 1.16 and 0.18 call; executed.
    """
    last = spec.integer("seed") + spec.hardware.world - 1
    if last >= 2**32:
        yield Finding(
            spec.place("seed", f"{spec.integer('seed')} + {spec.hardware.world - 1} = {last}"),
            "the last process has no seed: it would be 2^32 or more",
            "write `seed 42`",
            (spec.label("hardware", "the processes"),),
        )


@rule("XP675", "recomputed-otherwise-after-generation")
def recomputed_otherwise(spec: Spec) -> Iterator[Finding]:
    """trl 0.24 switches recomputation off to generate, and on again in the reentrant way, whatever was stated.

    The reentrant way gives no gradient where nothing before a layer is trained. Today: RuntimeError "does not require
    grad" in the first step with `freeze` or `qlora`; in silence otherwise. Source: trl 0.24 `models/utils.py`
    (`unwrap_model_for_generation`); executed.
    """
    path: Final = "memory.checkpointing.reentrant"
    if spec.reentrant_after_generation and spec.flag("memory.checkpointing") and not spec.flag(path):
        yield Finding(
            spec.place(path, "until the first completions"),
            f"{spec.stack.name} recomputes in the reentrant way once it has generated",
            write("reentrant = true", ", or `memory(checkpointing=false)`"),
            (spec.label("method", "generates completions"),),
        )


@rule("XP676", "completions-without-a-cache")
def without_a_cache(spec: Spec) -> Iterator[Finding]:
    """trl 0.18 generates while layers are recomputed, and the layers of some families are then handed no cache.

    Each new token sees itself alone. Today, silently: completions that have nothing to do with their prompts; with
    `attn = eager` of opt, and with gpt_bigcode, RuntimeError at the first. Source: trl 0.18 `models/utils.py`
    (`unwrap_model_for_generation`), transformers 4.52.3 `models/opt/modeling_opt.py` and the others; executed for each
    family. Later ones switch recomputation off to generate.
    """
    path: Final = "memory.checkpointing"
    alone = spec.method.grouped and generates_itself(spec.method, spec.get) and spec.flag(path)
    if alone and spec.model.model_type in spec.stack.facts.recomputed_generation:
        other = able(lambda one: spec.model.model_type not in one.facts.recomputed_generation)
        yield Finding(
            spec.place(path, "no cache while it generates"),
            f"{spec.model.model_type} forgets the prompt where {spec.stack.name} generates and recomputes",
            f"write `memory(checkpointing=false)`, or `target {other}`",
            (spec.model.label, spec.label("method", "generates completions")),
        )


@rule("XP439", "evaluation-of-two-passes-under-zero3")
def evaluated_twice(spec: Spec) -> Iterator[Finding]:
    """An evaluation that scores the model's completions twice ends under ZeRO-3 before DeepSpeed 0.19.

    rloo does, and grpo where completions serve several steps. DeepSpeed fetches weights in the order of an earlier
    pass, and the second one is another, where steps accumulate. Today: RuntimeError "tracing error" in the first
    evaluation. Source: trl 0.24 `rloo_trainer.py`, trl 0.24 and 0.18 `grpo_trainer.py` (`old_per_token_logps`),
    deepspeed 0.18.2 and 0.16.8 `zero/partitioned_param_coordinator.py`; executed.
    """
    facts = spec.stack.facts
    several = (spec.get("method.iterations") or 1) > 1
    twice = generates_itself(spec.method, spec.get) and (spec.method.scores_twice or several)
    accumulates = spec.zero_stage == 3 and spec.integer("batch.accum") > 1
    if twice and spec.evaluates and accumulates and not facts.zero3_evaluates_twice:
        other = able(lambda one: one.facts.zero3_evaluates_twice)
        yield Finding(
            spec.place("method.iterations" if several else "method", "scores completions twice"),
            f"{spec.text('method')} cannot be evaluated under zero3 on {spec.stack.name}",
            f"leave `eval` out, or write `strategy zero1`, or `target {other}`",
            (spec.label("strategy", "the strategy"), spec.label("batch.accum", "accumulates")),
        )


@rule("XP665", "frozen-sampling")
def frozen_sampling(spec: Spec) -> Iterator[Finding]:
    """Completions of one prompt must differ, or their rewards are equal and nothing is learned.

    Today: a temperature or a repetition penalty of 0 is a ValueError when the first completions are sampled;
    `top_k = 1`, `top_p = 0` and `min_p = 1` keep one token and give equal completions, in silence. Source: transformers
    5.23 and 4.52 `generation/logits_process.py`; executed.
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
                spec.place(path, text),
                f"`{name} = {value:g}` leaves nothing to sample",
                write(f"{name} = {better}"),
            )


@rule("XP666", "fewer-prompts-than-a-round")
def few_prompts(spec: Spec) -> Iterator[Finding]:
    """One round of generation takes completions / generations prompts, and what does not fill a round is left out.

    Today, silently: the sampler gives nothing, and the run ends without a step. The rows of a local file are counted.
    Source: trl 1.16 `trainer/utils.py` and trl 0.18 `grpo_trainer.py` (`RepeatSampler`); executed.
    """
    if spec.method.name == "distill" and not spec.stack.facts.distill_rounds:
        return
    if not any(source.sha256 is not None or source.parts for source in spec.data):
        return
    from xpc.compiler.data import rows

    total = 0
    for source in spec.data:
        there = rows.count(source)
        if there is None or source.take is not None or spec.get("data.holdout") is not None:
            return
        total += there
    rounds, group = spec.get("method.steps_per_generation"), spec.get("method.generations")
    steps = rounds if isinstance(rounds, int) else spec.integer("batch.accum")
    parts = spec.integer("batch.micro"), spec.hardware.world, steps
    made = prod(parts)
    need = made // group if isinstance(group, int) else made
    if total < need:
        from xpc.compiler.plan.divisors import largest

        enough = made // largest(total, *parts) if total and group else None
        fewer = "write a smaller `gbs`, or give it more prompts" if total else "give it more prompts"
        yield Finding(
            spec.data[0].label,
            f"{total} prompt{'s' * (total != 1)}, and one round of generation takes {need}",
            f"write `generations = {enough}`, or a smaller `gbs`" if enough else fewer,
            (spec.label("batch.gbs", f"{made} completions a round"), spec.label("method.generations")),
        )
