"""`extra trl`: arguments that meet the optimizer and the batch (XP270 to XP273)."""

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
OF_BOTH = {
    **dict.fromkeys((name for name in PACKAGES["bitsandbytes"] if name.endswith(("ademamix", "ademamix8bit"))), _MIX),
    **dict.fromkeys(PACKAGES["galore"], ("proj_type",)),
    **dict.fromkeys(PACKAGES["apollo"], ("proj", "scale_type", "proj_type")),
    **dict.fromkeys(PACKAGES["schedulefree"], _FREE),
    **dict.fromkeys(PACKAGES["torchao"], ("bf16_stochastic_round",)),
    "grokadamw": ("alpha_init", "lamb", "gamma", "grokking_signal_decay_rate", "gradient_clipping"),
    "stable_adamw": ("max_lr", "kahan_sum", "decouple_lr"),
}
"""The words of `optim_args` that an optimizer reads; any other is dropped in silence."""
OF_THE_NEW = {
    "sgd": ("dampening", "weight_decay", "nesterov"),
    "adagrad": ("lr_decay", "weight_decay", "eps"),
    "rmsprop": ("alpha", "eps", "weight_decay", "centered"),
}
"""Those that only transformers 5.23 hands on."""
WORDS = ("proj", "scale_type", "proj_type", "nesterov", "centered", "kahan_sum", "decouple_lr", "bf16_stochastic_round")
"""Those whose value is no number."""


EXAMPLES = {"proj_type": "std", "proj": "random", "bf16_stochastic_round": "true"}


@rule("XP270", "optimizer-words")
def optimizer_words(spec: Spec) -> Iterator[Finding]:
    """`optim_args` is a text of `name=number` with commas between, of names that the optimizer reads.

    Today: ValueError ("not enough values to unpack", "could not convert", "Nesterov momentum requires a momentum") in
    train(), after the data is tokenized; a name that the optimizer does not read is dropped in silence. Source:
    transformers 5.23 `trainer_optimizer.py`, 4.52 `Trainer.get_optimizer_cls_and_kwargs`; executed.
    """
    text = spec.extra_value("trl", "optim_args")
    if not isinstance(text, str):
        return
    name = spec.text("optimizer")
    new = OF_THE_NEW.get(name, ()) if spec.stack.facts.torch_optimizers_read_words else ()
    known = (*OF_BOTH.get(name, ()), *new)
    better = f'optim_args = "{known[0]}={EXAMPLES.get(known[0], "0.1")}"' if known else None
    example = f"write `{better}`, or leave it out" if better else "leave it out"
    for part in text.replace(" ", "").split(","):
        word, equals, value = part.partition("=")
        place = spec.extra_place("trl", "optim_args", f"`{part[:40]}`")
        if not word or not equals or "=" in value or not value:
            message = "`optim_args` is written `name=number`, with commas between"
            yield Finding(place, message, example, replace=better)
            return
        if word in SETTINGS:
            help = f"write `{word} = {value[:20]}` in `optimizer {name}` instead"
            yield Finding(place, f"`{word}` is a setting of the optimizer", help)
            return
        if word not in known:
            yield Finding(
                place,
                f"`optimizer {name}` of {spec.stack.name} does not read `{word[:40]}`",
                example,
                (spec.label("optimizer", "the optimizer"),),
                better,
            )
            return
        if word == "nesterov" and value.lower() in ("true", "1", "yes") and not spec.get("optimizer.momentum"):
            yield Finding(
                place,
                "`nesterov` without momentum",
                "write `optimizer sgd(momentum=0.9)`, or leave it out",
                (spec.label("optimizer", "the optimizer"),),
            )
            return
        if word not in WORDS and not _number(value):
            yield Finding(place, f"`{word}` takes a number", example, replace=better)
            return


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@rule("XP271", "batch-that-shrinks", "warning")
def batch_that_shrinks(spec: Spec) -> Iterator[Finding]:
    """With `auto_find_batch_size` the micro-batch gets smaller when memory runs out, and the global batch with it.

    The accumulation stays, so that the run goes on with another batch than `gbs` says. The batch of an evaluation stays
    too: where that is too large, the run ends in a RuntimeError. Source: transformers 5.23 `trainer.py`
    (`_evaluate`, `_inner_training_loop`), 4.52 `trainer.py`; accelerate 1.15 (times 0.9) and 1.4 (halved)
    `find_executable_batch_size`; executed.
    """
    if spec.extra_value("trl", "auto_find_batch_size") is not True or spec.zero_stage == 3 or spec.method.grouped:
        return
    micro, accum = spec.integer("batch.micro"), spec.integer("batch.accum")
    yield Finding(
        spec.extra_place("trl", "auto_find_batch_size", f"less than {micro} x {accum} x {spec.replicas}"),
        f"a smaller micro-batch makes another global batch than {spec.integer('batch.gbs')}",
        write("auto_find_batch_size = false"),
        (spec.label("batch.gbs", "the global batch"),),
    )
    if spec.get("eval.every") != NEVER:
        yield Finding(
            spec.extra_place("trl", "auto_find_batch_size", "of training alone"),
            f"the micro-batch of evaluation stays {spec.integer('eval.micro')}, whatever fits",
            write("auto_find_batch_size = false"),
            (spec.label("eval.micro") or spec.label("eval.every", "evaluated here"),),
        )


@rule("XP272", "noise-below-zero")
def noise_below_zero(spec: Spec) -> Iterator[Finding]:
    """NEFTune's noise is drawn between minus and plus its strength, so the strength is no negative number.

    0 draws no noise, and is legal. Today: RuntimeError at the first forward pass. Source: transformers 5.23
    `integrations/neftune.py`, 4.52 `trainer_utils.py`; executed.
    """
    strength = spec.extra_value("trl", "neftune_noise_alpha")
    if isinstance(strength, int | float) and strength < 0:
        yield Finding(
            spec.extra_place("trl", "neftune_noise_alpha", f"from {-strength:g} to {strength:g}"),
            "noise of a negative strength",
            write("neftune_noise_alpha = 5"),
        )


@rule("XP273", "rebalanced-over-one-sequence")
def rebalanced_over_context(spec: Spec) -> Iterator[Finding]:
    """`batch_rebalance` deals rows out to every process, and processes that share a sequence must read the same.

    Today: silence; the sampler takes the whole world for readers of data. Source: transformers 5.23 `trainer.py`
    (`_get_train_sampler`), which documents it for data parallelism only; executed.
    """
    if spec.extra_value("trl", "train_sampling_strategy") == "batch_rebalance" and spec.context_parallel > 1:
        yield Finding(
            spec.extra_place("trl", "train_sampling_strategy", f"dealt out to {spec.hardware.world} processes"),
            f"{spec.context_parallel} processes share a sequence, and would read different rows",
            write('train_sampling_strategy = "group_by_length"'),
            (spec.label("strategy.context_parallel", "shared here"),),
        )
