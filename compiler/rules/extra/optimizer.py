"""Rules about arguments in `extra trl` for the optimizer and the batch (XP270 to XP273)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.optimizers import PACKAGES
from xpc.compiler.rules.core.conditions import extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = extra("trl")

SETTINGS = ("rank", "scale", "update_proj_gap", "momentum")
_MIX = ("beta1", "beta2", "beta3", "alpha", "eps", "t_alpha", "t_beta3")
_FREE = ("weight_lr_power", "r")
ON_ALL = {
    **dict.fromkeys((name for name in PACKAGES["bitsandbytes"] if name.endswith(("ademamix", "ademamix8bit"))), _MIX),
    **dict.fromkeys(PACKAGES["galore"], ("proj_type",)),
    **dict.fromkeys(PACKAGES["apollo"], ("proj", "scale_type", "proj_type")),
    **dict.fromkeys(PACKAGES["schedulefree"], _FREE),
    **dict.fromkeys(PACKAGES["torchao"], ("bf16_stochastic_round",)),
    "grokadamw": ("alpha_init", "lamb", "gamma", "grokking_signal_decay_rate", "gradient_clipping"),
    "stable_adamw": ("max_lr", "kahan_sum", "decouple_lr"),
}
"""Maps each optimizer to the names that it reads from `optim_args`. transformers silently drops any other name."""
ON_TRANSFORMERS_5 = {
    "sgd": ("dampening", "weight_decay", "nesterov"),
    "adagrad": ("lr_decay", "weight_decay", "eps"),
    "rmsprop": ("alpha", "eps", "weight_decay", "centered"),
}
"""Maps each optimizer of torch to those names in `optim_args` that transformers 5.23 passes to the optimizer, but that
earlier versions drop.
"""
WORDS = ("proj", "scale_type", "proj_type", "nesterov", "centered", "kahan_sum", "decouple_lr", "bf16_stochastic_round")
"""Names in `optim_args` whose value is a word, not a number, such as `nesterov=true`."""

EXAMPLES = {"proj_type": "std", "proj": "random", "bf16_stochastic_round": "true"}


@rule("XP270", "optimizer-words")
def optimizer_words(spec: Spec) -> Iterator[Finding]:
    """`optim_args` must list only names that the optimizer reads, and give a value to each: `optim_args =
    "alpha=0.99,centered=true"` for rmsprop.

    Why it is bad: the optimizer would use its defaults instead of the values in `optim_args`.

    Without this rule: ValueError ("not enough values to unpack", "could not convert", "Nesterov momentum requires a
    momentum") in train(), after the data is tokenized. A name that the optimizer does not read is silently dropped.

    Source: transformers 5.23 `trainer_optimizer.py`, 4.52 `Trainer.get_optimizer_cls_and_kwargs`; confirmed by running
    it.
    """
    text = spec.extra_value("trl", "optim_args")
    if not isinstance(text, str):
        return
    name = spec.text("optimizer")
    new = ON_TRANSFORMERS_5.get(name, ()) if spec.stack.facts.torch_optimizers_read_words else ()
    known = (*ON_ALL.get(name, ()), *new)
    better = f'optim_args = "{known[0]}={EXAMPLES.get(known[0], "0.1")}"' if known else None
    example = f"write `{better}`, or leave `optim_args` out" if better else "leave `optim_args` out"
    for part in text.replace(" ", "").split(","):
        word, equals, value = part.partition("=")
        location = spec.extra_location("trl", "optim_args", f"`{part[:40]}`")
        if not word or not equals or "=" in value or not value:
            message = "`optim_args` is a list of `name=number`, separated by commas"
            yield Finding(location, message, example, replace=better)
            return
        if word in SETTINGS:
            help = f"write `{word} = {value[:20]}` in `optimizer {name}` instead"
            yield Finding(location, f"`{word}` is a setting of the optimizer", help)
            return
        if word not in known:
            yield Finding(
                location,
                f"`optimizer {name}` of {spec.stack.name} does not read `{word[:40]}`",
                example,
                (spec.label("optimizer", "the optimizer"),),
                better,
            )
            return
        if word == "nesterov" and value.lower() in ("true", "1", "yes") and not spec.get("optimizer.momentum"):
            yield Finding(
                location,
                "`nesterov` needs momentum",
                "write `optimizer sgd(momentum=0.9)`, or leave `nesterov` out",
                (spec.label("optimizer", "the optimizer"),),
            )
            return
        if word not in WORDS and not _number(value):
            yield Finding(location, f"`{word}` takes a number", example, replace=better)
            return


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@rule("XP271", "batch-that-shrinks", "warning")
def batch_that_shrinks(spec: Spec) -> Iterator[Finding]:
    """`auto_find_batch_size` should be off. When memory runs out, it makes the micro-batch smaller without raising the
    accumulation, so the global batch also becomes smaller.

    Why it is bad: the run continues with a smaller global batch than `gbs` states.

    Without this rule: the smaller batch is used (accelerate 1.15 multiplies by 0.9, 1.4 halves). The batch of an
    evaluation is not reduced; if it is too large, the run ends with a RuntimeError.

    Source: transformers 5.23 `trainer.py` (`_evaluate`, `_inner_training_loop`), 4.52 `trainer.py`; accelerate 1.15 and
    1.4 `find_executable_batch_size`; confirmed by running it.
    """
    if spec.extra_value("trl", "auto_find_batch_size") is not True or spec.zero_stage == 3 or spec.method.grouped:
        return
    micro, accum = spec.integer("batch.micro"), spec.integer("batch.accum")
    yield Finding(
        spec.extra_location("trl", "auto_find_batch_size", f"less than {micro} x {accum} x {spec.replicas}"),
        f"`auto_find_batch_size` may reduce the global batch of {spec.integer('batch.gbs')}",
        write("auto_find_batch_size = false"),
        (spec.label("batch.gbs", "the global batch"),),
    )
    if spec.get("eval.every") != NEVER:
        yield Finding(
            spec.extra_location("trl", "auto_find_batch_size", "for training only"),
            f"the micro-batch of evaluation stays {spec.integer('eval.micro')}, even if that is too large",
            write("auto_find_batch_size = false"),
            (spec.label("eval.micro") or spec.label("eval.every", "evaluated here"),),
        )


@rule("XP272", "noise-below-zero")
def noise_below_zero(spec: Spec) -> Iterator[Finding]:
    """`neftune_noise_alpha`, the strength of NEFTune's noise, cannot be negative: each number of the noise is drawn
    from a range that goes from the negative to the positive strength. A strength of 0 adds no noise and is legal.

    Why it is bad: the run fails in its first step.

    Without this rule: RuntimeError at the first forward pass.

    Source: transformers 5.23 `integrations/neftune.py`, 4.52 `trainer_utils.py`; confirmed by running it.
    """
    strength = spec.extra_value("trl", "neftune_noise_alpha")
    if isinstance(strength, int | float) and strength < 0:
        yield Finding(
            spec.extra_location("trl", "neftune_noise_alpha", f"from {-strength:g} to {strength:g}"),
            "the strength of NEFTune's noise is negative",
            write("neftune_noise_alpha = 5"),
        )


@rule("XP273", "rebalanced-over-one-sequence")
def rebalanced_over_context(spec: Spec) -> Iterator[Finding]:
    """`batch_rebalance` cannot be used if several processes share a sequence: it gives different rows to all processes,
    but processes that share a sequence must read the same row.

    Why it is bad: processes of one sequence would read different rows.

    Without this rule: the sampler silently distributes rows over all processes, including those that share a sequence.

    Source: transformers 5.23 `trainer.py` (`_get_train_sampler`), whose documentation describes `batch_rebalance` for
    data parallelism only; confirmed by running it.
    """
    if spec.extra_value("trl", "train_sampling_strategy") == "batch_rebalance" and spec.context_parallel > 1:
        yield Finding(
            spec.extra_location(
                "trl", "train_sampling_strategy", f"distributes rows to {spec.hardware.world} processes"
            ),
            f"{spec.context_parallel} processes share a sequence, and would read different rows",
            write('train_sampling_strategy = "group_by_length"'),
            (spec.label("strategy.context_parallel", "shared here"),),
        )
