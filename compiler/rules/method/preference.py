"""Rules for preference tuning and reward models (XP172, XP630 to XP637, XP641 to XP643, XP577, XP691)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.setting import FlagPath
from xpc.compiler.rules.core.conditions import preferences
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = preferences

DIVERGENCES = ("reverse_kl", "forward_kl", "js_divergence", "alpha_divergence")
SORTED = ("aot", "aot_pair", "aot_unpaired")
"""dpo's losses that sort the scores of a batch. These losses cannot be combined with weights of rows: after the
sorting, a score would get the weight of another row.
"""
DIVIDED_BY_BETA = ("ipo", "simpo", "sppo_hard")


def _method_is(spec: Spec, *names: str) -> bool:
    """Whether the spec's method is one of the names."""
    return spec.get("method") in names


@rule("XP630", "divergence-of-another-loss")
def divergence(spec: Spec) -> Iterator[Finding]:
    """An `f_divergence_type` other than reverse KL needs a dpo loss that has an f-divergence.

    Why it is bad: a divergence such as `js_divergence` changes the formula for the scores of the two answers. Only some
    losses, such as `sigmoid`, use this formula.

    Without this rule: trl 1.16 raises ValueError in the trainer's constructor; trl 0.18 silently computes the loss
    without the divergence.

    Source: `dpo_trainer.py` of trl 1.16 and 0.18; confirmed by running it.
    """
    kind = spec.extra_value("trl", "f_divergence_type")
    if not _method_is(spec, "dpo") or kind in (None, "reverse_kl") or kind not in DIVERGENCES:
        return
    others = [name for name in spec.losses if name not in spec.stack.facts.dpo_losses_divergent]
    if others:
        yield Finding(
            spec.extra_location("trl", "f_divergence_type", "not used by this loss"),
            f"`{others[0]}` has no f-divergence",
            "write `loss = sigmoid`, or leave `f_divergence_type` out",
            (spec.label("method.loss", "the loss"),),
        )


@rule("XP631", "unknown-divergence")
def unknown_divergence(spec: Spec) -> Iterator[Finding]:
    """On trl 1.16, `f_divergence_type` must be one of four names, such as `js_divergence`. On trl 0.18, the type of the
    argument lists the legal names, and the rule XP104 checks them.

    Why it is bad: trl 1.16 does not check the name of the divergence before the first step.

    Without this rule: ValueError in the first step, after the reference model is loaded.

    Source: trl 1.16 `dpo_trainer.py`; confirmed by running it.
    """
    kind = spec.extra_value("trl", "f_divergence_type")
    if _method_is(spec, "dpo") and kind is not None and kind not in DIVERGENCES:
        yield Finding(
            spec.extra_location("trl", "f_divergence_type"),
            f"`{str(kind)[:40]}` is not a divergence",
            "write `f_divergence_type = js_divergence`, or " + ", ".join(DIVERGENCES),
            replace="f_divergence_type = js_divergence",
        )


@rule("XP632", "weights-of-sorted-rows")
def weights_of_sorted(spec: Spec) -> Iterator[Finding]:
    """The `aot` losses cannot be combined with `use_weighting`.

    Why it is bad: the `aot` losses sort the rows of a batch, and the weights (WPO) are in the order of the unsorted
    rows.

    Without this rule: trl 1.16 raises NotImplementedError in the trainer's constructor; trl 0.18 silently multiplies
    each loss by the weight of another row.

    Source: `dpo_trainer.py` of trl 1.16 and 0.18; confirmed by running it.
    """
    for name in spec.losses:
        if _method_is(spec, "dpo") and name in SORTED and spec.extra_value("trl", "use_weighting") is True:
            yield Finding(
                spec.extra_location("trl", "use_weighting", "weighs rows before they are sorted"),
                f"`use_weighting` cannot be combined with `{name}`",
                "write `loss = sigmoid`, or leave `use_weighting` out",
                (spec.label("method.loss", "the loss"),),
            )


@rule("XP633", "smoothing-out-of-range")
def smoothing_range(spec: Spec) -> Iterator[Finding]:
    """`label_smoothing` must be above 0 and below 1 for `exo_pair`, and below 0.5 for `robust`.

    Why it is bad: `exo_pair` takes the logarithm of the smoothing, and `robust` divides by 1 - 2 x smoothing.

    Without this rule: for `exo_pair` without smoothing, trl 1.16 raises ValueError and trl 0.18 uses 0.001. For
    `robust` with a smoothing of 0.5 or more, trl 1.16 only warns, although the loss is infinite or reverses the
    preferences.

    Source: `dpo_trainer.py` of trl 1.16 and 0.18; confirmed by running it.
    """
    value = spec.get("method.label_smoothing")
    if not _method_is(spec, "dpo") or not isinstance(value, int | float):
        return
    for name, wrong, text, better in (
        ("exo_pair", value == 0 and spec.stack.facts.exo_pair_needs_smoothing, "`exo_pair` computes log(0)", 0.001),
        ("exo_pair", value >= 1, "`exo_pair` computes log(1 - 1)", 0.001),
        ("robust", value >= 0.5, f"`robust` divides by 1 - 2 x {value:g} = {1 - 2 * value:g}", 0.1),
    ):
        if wrong and name in spec.losses:
            written = spec.label("method.label_smoothing", text)
            yield Finding(
                written or spec.location("method.loss", text),
                f"`{name}` cannot be used with a label smoothing of {value:g}",
                f"write `label_smoothing = {better:g}`" + ("" if written else " in `method`"),
                (spec.label("method.loss", "the loss") if written else None,),
                replace=f"label_smoothing = {better:g}" if written else None,
            )


@rule("XP634", "smoothing-not-read")
def smoothing_not_read(spec: Spec) -> Iterator[Finding]:
    """`label_smoothing` needs a dpo loss that reads it. Most losses do not read it; `sigmoid` reads it in trl 0.18, but
    not in trl 1.16.

    Why it is bad: the loss treats the preferences as certain, although the spec assumes that some are wrong.

    Without this rule: trl 0.18 warns, trl 1.16 reports nothing, and both train without smoothing.

    Source: `dpo_trainer.py` of trl 1.16 and 0.18; confirmed by running it (the losses with and without smoothing were
    equal).
    """
    value, losses = spec.get("method.label_smoothing"), spec.losses
    reads = spec.stack.facts.dpo_losses_smoothed
    if _method_is(spec, "dpo") and value and losses and not set(losses) & set(reads):
        yield Finding(
            spec.location("method.label_smoothing", "ignored"),
            f"`{losses[0]}` on {spec.stack.name} does not smooth its labels",
            "write `loss = robust`, or leave `label_smoothing` out",
            (spec.label("method.loss", "the loss"), spec.label("target", "the target")),
        )


@rule("XP635", "reference-of-no-strength")
def no_beta(spec: Spec) -> Iterator[Finding]:
    """`beta = 0` is accepted only if the loss also has a likelihood term, and no part of it divides by `beta`. The
    likelihood term of dpo is the loss `sft`; cpo has one if `likelihood` is not 0; kto has none. `ipo`, `simpo` and
    `sppo_hard` divide by `beta`.

    Why it is bad: `beta` multiplies the term of the loss from which preferences are learned. Without a likelihood term,
    every gradient is 0 if `beta` is 0.

    Without this rule: nothing is reported for most losses, but the loss stays the same and no weight changes. `ipo`,
    `simpo` and `sppo_hard` raise ZeroDivisionError in the first step.

    Source: `dpo_trainer.py`, `kto_trainer.py`, `cpo_trainer.py` of trl 1.16 and 0.18; confirmed by running it.
    """
    if not _method_is(spec, "cpo", "dpo", "kto") or spec.get("method.beta") != 0:
        return
    divides = any(name in DIVIDED_BY_BETA for name in spec.losses)
    other = "sft" in spec.losses or (_method_is(spec, "cpo") and spec.get("method.likelihood") != 0)
    if other and not divides:
        return
    yield Finding(
        spec.location("method.beta", "the loss divides by `beta`" if divides else "nothing is learned"),
        f"{spec.text('method')} cannot learn with `beta = 0`",
        write("beta = 0.1"),
    )


@rule("XP691", "losses-of-no-weight")
def no_weight(spec: Spec) -> Iterator[Finding]:
    """The weights of the dpo losses must add up to more than 0, because dpo trains on the weighted sum of its losses.

    Why it is bad: a sum of 0 leaves nothing to learn from, and a sum below 0 reverses the loss.

    Without this rule: nothing is reported; with a sum of 0 the loss is 0.0000 and the model does not change, and with a
    sum below 0 the model learns to prefer the rejected answers.

    Source: trl 1.16 `dpo_trainer.py` (`loss_weights`); confirmed by running it.
    """
    losses = spec.weighted("method.loss")
    total = sum(1.0 if one.weight is None else one.weight for one in losses)
    if _method_is(spec, "dpo") and losses and total <= 0:
        others = "".join(f", {one.name}(weight=1)" for one in losses[1:])
        yield Finding(
            spec.location("method.loss", f"the weights add up to {total:g}"),
            "nothing is learned: every loss has the weight 0"
            if not any(one.weight for one in losses)
            else "negative weights reverse the losses: training would increase them",
            f"write `loss = [{losses[0].name}(weight=1){others}]`",
        )


@rule("XP636", "moving-reference-computed-beforehand")
def sync_and_precompute(spec: Spec) -> Iterator[Finding]:
    """`sync_reference`, which updates the reference during training, cannot be combined with `precompute`.

    Why it is bad: with `precompute`, the log-probabilities of the reference are computed before training, and cannot
    change during the run.

    Without this rule: ValueError in the trainer's constructor, after the data is tokenized.

    Source: trl 1.16 `dpo_trainer.py` and `kto_trainer.py`, trl 0.18 `dpo_trainer.py`; confirmed by running it.
    """
    if spec.flag("method.sync_reference") and spec.flag("method.precompute"):
        yield Finding(
            spec.location("method.sync_reference", "updates the reference during training"),
            "`sync_reference` cannot update a reference that is computed before training",
            "leave `sync_reference` or `precompute` out",
            (spec.label("method.precompute", "once, before training"),),
        )


@rule("XP577", "precomputed-reference-in-two-types")
def precompute_of_four_bits(spec: Spec) -> Iterator[Finding]:
    """On trl 0.24 and 0.18, kto cannot precompute its reference with a 4-bit base in bf16.

    Why it is bad: trl 0.24 and 0.18 compute the reference before the first step, without autocast. The last norm of a
    4-bit model returns float32, and the output head has bfloat16 weights. Without autocast, torch cannot multiply the
    two.

    Without this rule: RuntimeError before the first step ("expected m1 and m2 to have the same dtype").

    Source: trl 0.24 and 0.18 `kto_trainer.py` (`compute_reference_log_probs`, and `peft_module_casting_to_bf16` of its
    constructor); confirmed by running it.
    """
    bits = spec.bits == 4 and spec.text("precision") == "bf16"
    facts = spec.stack.facts
    if _method_is(spec, "kto") and spec.flag("method.precompute") and bits and not facts.kto_precomputes_in_autocast:
        other = able(lambda one: one.facts.kto_precomputes_in_autocast)
        yield Finding(
            spec.location("method.precompute"),
            f"{spec.stack.name} cannot precompute kto's reference with a 4-bit base in bf16",
            f"leave `precompute` out, or write `target {other}`",
            (spec.label("lora.bits", "4 bits"), spec.label("precision")),
        )


@rule("XP637", "precomputed-reference-with-zero3")
def precompute_with_zero3(spec: Spec) -> Iterator[Finding]:
    """On trl-0.18, `precompute` cannot be combined with ZeRO-3. The other targets refuse this combination only for a
    4-bit base on a CPU.

    Why it is bad: trl 0.18 cannot compute the reference of a sharded model. On a CPU with AVX512-BF16, bitsandbytes
    repacks 4-bit weights as soon as the model is set to evaluation mode, and fails because ZeRO-3 has changed the dtype
    of these weights.

    Without this rule: trl 0.18 raises ValueError in the trainer's constructor, after the data is tokenized. With 4 bits
    on a CPU, a model whose layers have a bias raises RuntimeError ("a view of a leaf Variable") at once, and any other
    model raises AssertionError when it is saved.

    Source: trl 0.18 `dpo_trainer.py`, `kto_trainer.py`; bitsandbytes 0.50 `nn/modules.py` `Linear4bit`; confirmed by
    running it.
    """
    if not (spec.flag("method.precompute") and spec.zero_stage == 3):
        return
    if spec.bits == 4 and spec.on_cpu:
        yield Finding(
            spec.location("method.precompute", "bitsandbytes repacks the base for the CPU"),
            "under zero3, the reference cannot be precomputed with a 4-bit base on a CPU",
            "write `strategy zero2`, or leave `precompute` out",
            (spec.label("strategy", "the strategy"), spec.label("hardware", "the hardware")),
        )
    elif not spec.stack.facts.precompute_under_zero3:
        other = able(lambda one: one.facts.precompute_under_zero3)
        yield Finding(
            spec.location("method.precompute"),
            f"{spec.stack.name} cannot precompute the reference under zero3",
            f"write `strategy zero2`, `target {other}`, or leave `precompute` out",
            (spec.label("strategy", "the strategy"), spec.label("target", "the target")),
        )


@rule("XP641", "generation-without-wandb")
def generate_without_wandb(spec: Spec) -> Iterator[Finding]:
    """`generate_during_eval` needs the tracker wandb.

    Why it is bad: trl writes the completions into a table in wandb or Comet, and no spec can track with Comet.

    Without this rule: if neither wandb nor Comet is installed, ValueError in the trainer's constructor. Otherwise
    nothing is reported, and the completions are generated and dropped.

    Source: trl 0.18 `dpo_trainer.py`, `kto_trainer.py`, `orpo_trainer.py`; trl 1.16 `experimental/orpo`; confirmed by
    running it.
    """
    if spec.extra_value("trl", "generate_during_eval") is True and "wandb" not in spec.names("track"):
        yield Finding(
            spec.extra_location("trl", "generate_during_eval", "reported only to wandb"),
            "`generate_during_eval` needs the tracker wandb",
            "write `track wandb`, or leave `generate_during_eval` out",
            (spec.label("track", "the trackers"),),
        )


@rule("XP642", "pairs-without-a-length")
def grouped_pairs(spec: Spec) -> Iterator[Finding]:
    """Preference pairs cannot be grouped by length (`group_by_length`).

    Why it is bad: `group_by_length` compares the lengths of the rows' `input_ids`, but a prepared pair has no
    `input_ids`, because it contains two answers.

    Without this rule: ValueError when training begins, after the data is tokenized. Before trl 1, kto groups rows only
    in evaluation, so the error comes at the first evaluation.

    Source: transformers 5.23, 4.57.6 and 4.52.3 `trainer_pt_utils.LengthGroupedSampler`, 4.57.6 and 4.52.3
    `Trainer._get_eval_sampler`; confirmed by running it for dpo, orpo, reward and kto.
    """
    strategy = spec.extra_value("trl", "train_sampling_strategy")
    grouped = strategy == "group_by_length"
    name = "train_sampling_strategy" if strategy is not None else "group_by_length"
    older = spec.extra_value("trl", "group_by_length") is True
    if _method_is(spec, "kto"):
        evaluated = spec.amount("eval.every") != NEVER
        older = older and evaluated and spec.extra_value("trl", "use_legacy_prediction_loop") is not True
        wrong = older or (grouped and spec.losses != ("kto",))
    else:
        wrong = grouped or older or strategy == "batch_rebalance"
    if wrong:
        better = "train_sampling_strategy = random" if strategy is not None else "group_by_length = false"
        yield Finding(
            spec.extra_location("trl", name, "the rows have no `input_ids`"),
            f"rows of {spec.text('method')} cannot be grouped by length",
            write(better),
            (spec.label("method", "the method"),),
        )


@rule("XP643", "two-passes-of-reentrant-checkpointing")
def two_passes(spec: Spec) -> Iterator[Finding]:
    """On trl 0.18, the reward trainer cannot use reentrant checkpointing under ddp and ZeRO-2. Under ZeRO-3, it cannot
    use reentrant checkpointing if one bucket of gradients contains the complete model.

    Why it is bad: the reward trainer of trl 0.18 runs the model twice before the backward pass, once per answer, so
    reentrant checkpointing delivers every gradient twice. trl 1.16 runs the model once.

    Without this rule: RuntimeError or AssertionError in the first step. Under ZeRO-1, and with smaller buckets under
    ZeRO-3, the gradients of the chosen and of the rejected answer are added, which is correct.

    Source: trl 0.18 `reward_trainer.py` (`compute_loss`), deepspeed 0.16.8 `stage3.py`
    (`__reduce_and_partition_ipg_grads`); confirmed by running it with ddp, zero1, zero2 and zero3.
    """
    twice = _method_is(spec, "reward") and spec.stack.facts.reward_runs_twice
    counted = spec.zero_stage == 2 or (spec.text("strategy") == "ddp" and spec.hardware.world > 1)
    bucket, facts = spec.get("strategy.reduce_bucket"), spec.model.facts
    if spec.zero_stage == 3 and bucket is not None and facts is not None and not spec.lora:
        counted = spec.integer("strategy.reduce_bucket") >= facts.params
    path: FlagPath = "memory.checkpointing.reentrant"
    if twice and counted and spec.flag("memory.checkpointing") and spec.flag(path):
        yield Finding(
            spec.location(path, "reentrant checkpointing computes each gradient twice"),
            f"each gradient would be computed twice in a step, and {spec.text('strategy')} accepts it only once",
            write("reentrant = false"),
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP172", "no-room-for-answers")
def room_for_answers(spec: Spec) -> Iterator[Finding]:
    """Before TRL 1, orpo, cpo and kto need a `max_prompt` below `seq`; dpo needs it only with `truncation_mode =
    keep_start`. If the spec leaves `max_prompt` out, xpc uses TRL's default, or half of `seq` if TRL's default for
    orpo, cpo or kto is not below `seq`.

    Why it is bad: if a row is longer than `seq`, orpo, cpo and kto keep only the first `seq - max_prompt` tokens of its
    answers, even if the prompt is short. If this difference is 0, no token of the answers is left. If it is negative,
    that many tokens are removed from the end of the answers, and the row may remain longer than `seq`. dpo keeps the
    first `seq` tokens of a row, which may all belong to the prompt.

    Without this rule: the loss of orpo is nan, because it is a mean over 0 tokens; kto silently trains on rows longer
    than `seq`; dpo silently learns nothing from rows whose prompt fills `seq`.

    Source: trl 0.18 and 0.24 `orpo_trainer.py` (`tokenize_row`), `kto_trainer.py` (`_process_tokens`),
    `dpo_trainer.py` (`concatenated_forward`); confirmed by running it.
    """
    prompt, seq = spec.get("method.max_prompt"), spec.integer("batch.seq")
    if prompt is None or "max_prompt_length" not in spec.fields():
        return
    cut = _method_is(spec, "dpo") and spec.extra_value("trl", "truncation_mode") == "keep_start"
    if prompt >= seq and (cut or _method_is(spec, "cpo", "kto", "orpo")):
        yield Finding(
            spec.location("method.max_prompt", f"seq - max_prompt = {seq - prompt}"),
            f"prompts of {prompt} tokens leave no room for answers within seq = {seq}",
            write(f"max_prompt = {max(1, seq // 2)}")
            if spec.written("method.max_prompt")
            else f"write `method {spec.text('method')}(max_prompt = {max(1, seq // 2)})`",
            (spec.label("batch.seq", "the longest sequence"),),
        )
