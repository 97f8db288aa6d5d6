"""Rules for grpo and rloo (XP485, XP660, XP661, XP664 to XP672). rewards.py has the rules about rewards, and
sampling.py has the rules for all methods that generate.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from xpc.compiler.language.kinds import NEVER
from xpc.compiler.plan.divisors import nearest as nearest_divisor
from xpc.compiler.rules.core.conditions import all_of, grouped, has_value
from xpc.compiler.rules.core.rule import Finding, rule, with_more, write
from xpc.compiler.spec import Spec

WHEN = all_of(grouped, has_value("method.generations"))

NAMES = {
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_importance_sampling_mode": ("sequence_mask", "sequence_truncate", "token_mask", "token_truncate"),
}
"""Maps arguments to the values that the trainer accepts. `GRPOConfig` of trl 1.16 accepts any text for these arguments;
only the trainer checks the values.
"""
SUMMED = ("bnpo", "dr_grpo", "dapo", "cispo")
"""grpo's losses that sum over tokens. With `level = sequence`, one importance ratio is used for all tokens of a
sequence, so these losses weight each sequence by its length.
"""


@rule("XP660", "group-does-not-divide")
def group_does_not_divide(spec: Spec) -> Iterator[Finding]:
    """The number of completions in one round of generation (micro-batch x processes x steps_per_generation) must be a
    multiple of `generations`.

    Why it is bad: the completions of one prompt form a group, and their rewards are compared with each other. So a
    round must contain complete groups.

    Without this rule: building the arguments raises ValueError.

    Source: trl 1.16 `grpo_config.py`, `rloo_config.py`; trl 0.18 `grpo_config.py`; confirmed by running it.
    """
    generations, micro = spec.integer("method.generations"), spec.integer("batch.micro")
    steps, world = spec.integer("method.steps_per_generation"), spec.hardware.world
    if (micro * world * steps) % generations == 0:
        return
    text = f"{micro} x {world} x {steps} = {micro * world * steps} completions a round"

    nearest = nearest_divisor(generations, micro, world, steps)
    related = (spec.label("batch.micro"), spec.label("batch.gbs"), spec.label("method.steps_per_generation"))
    written = spec.written("method.generations")
    yield Finding(
        spec.location("method.generations", text) if written else spec.location("batch.gbs", text),
        f"a round of {micro * world * steps} completions cannot be divided into groups of {generations}",
        f"write `generations = {nearest}`" if nearest else f"write `gbs = {generations * world}`",
        related if written else (spec.label("method", f"{generations} completions a prompt"),),
        replace=f"generations = {nearest}" if nearest and written else None,
    )


@rule("XP661", "evaluation-group-does-not-divide")
def eval_group(spec: Spec) -> Iterator[Finding]:
    """The number of rows in an evaluation batch, over all processes, must be a multiple of the number of completions
    per prompt: `num_generations_eval` if it is set, otherwise `generations`.

    Why it is bad: an evaluation also compares the rewards within a group (the completions of one prompt), so a batch
    must contain complete groups.

    Without this rule: building the arguments raises ValueError.

    Source: trl 1.16 `grpo_config.py`, `rloo_config.py`; trl 0.18 `grpo_config.py`; confirmed by running it.
    """
    if spec.amount("eval.every") == NEVER:
        return
    own = spec.extra_value("trl", "num_generations_eval")
    size = own if isinstance(own, int) and own else spec.integer("method.generations")
    micro, world = spec.integer("eval.micro"), spec.hardware.world
    if (micro * world) % size == 0:
        return
    least = size // gcd(size, world)
    better = f"{'' if spec.written('eval.micro') else 'eval.'}micro = {least * -(-micro // least)}"
    yield Finding(
        spec.extra_location("trl", "num_generations_eval")
        if own
        else spec.label("eval.micro") or spec.location("method.generations"),
        f"an evaluation batch of {micro} x {world} = {micro * world} completions cannot be divided into groups of "
        f"{size}",
        f"write `{better}`" if spec.written("eval.micro") else f"write `eval({better[5:].replace(' ', '')})`",
        (spec.label("method.generations", "completions of one prompt"),),
        replace=better if spec.written("eval.micro") and not own else None,
    )


@rule("XP664", "moving-reference-that-is-not-there")
def sync_without_reference(spec: Spec) -> Iterator[Finding]:
    """`sync_reference`, which updates the reference model during training, needs a `beta` above 0. With `beta = 0`,
    grpo's default in trl 1.16, there is no reference model.

    Why it is bad: the run has no reference to update.

    Without this rule: trl 1.16 raises ValueError in the trainer's constructor; trl 0.18 silently updates nothing.

    Source: trl 1.16 and 0.18 `grpo_trainer.py`, `callbacks.py`, trl 1.16 `rloo_trainer.py`; confirmed by running it.
    """
    if spec.flag("method.sync_reference") and spec.get("method.beta") == 0:
        yield Finding(
            spec.location("method.sync_reference", "no reference is kept"),
            "`sync_reference` has no reference to update: `beta` is 0",
            "write `beta = 0.04`, or leave `sync_reference` out",
            (spec.label("method.beta", "no KL term"),),
        )


@rule("XP667", "unknown-name-of-grpo")
def unknown_name(spec: Spec) -> Iterator[Finding]:
    """Some arguments of grpo, such as `vllm_importance_sampling_mode`, accept any text, but the trainer knows only a
    few values. The spec must use one of these values.

    Why it is bad: `GRPOConfig` accepts any text, so a misspelled name is only found after the run has started.

    Without this rule: ValueError in the first step, after the first completions are generated and rewarded.

    Source: trl 1.16 `grpo_trainer.py`; confirmed by running it.
    """
    for name, known in NAMES.items():
        value = spec.extra_value("trl", name)
        if value is not None and value not in known:
            yield Finding(
                spec.extra_location("trl", name, "one of " + ", ".join(known)),
                f"`{str(value)[:40]}` is not a value of `{name}`",
                write(f"{name} = {known[0]}"),
            )


@rule("XP668", "level-of-another-loss", "warning")
def level_and_loss(spec: Spec) -> Iterator[Finding]:
    """The loss must fit the level of the importance ratio, `token` or `sequence`: luspo is made for ratios of complete
    sequences, and vespo for ratios of single tokens.

    Why it is bad: a loss that sums over tokens weights the ratio of a sequence by the sequence's length.

    Without this rule: trl only writes a warning to the log.

    Source: trl 1.16 `grpo_trainer.py`; confirmed by running it.
    """
    level = spec.get("method.level") or "token"
    for one in spec.weighted("method.loss"):
        if one.name == "luspo" and level == "token":
            better = "sequence"
        elif level == "sequence" and one.name in ("vespo", *SUMMED):
            better = "token"
        else:
            continue
        written = spec.written("method.level")
        location = spec.location("method.level") if written else spec.location("method.loss", "made for sequences")
        help, replace = f"write `level = {better}`", f"level = {better}" if written else None
        # the spec states no loss, so the help names a loss to write
        if better == "token" and not spec.written("method.loss"):
            help = "write `loss = grpo`, the loss of GSPO's paper, or leave `level` out"
            replace = with_more(location, "loss = grpo")
        yield Finding(
            location,
            f"the loss `{one.name}` is not made for {level}-level ratios",
            help,
            (spec.label("method.loss", "the loss") if written else None,),
            replace=replace,
        )


@rule("XP669", "correction-without-bounds")
def correction(spec: Spec) -> Iterator[Finding]:
    """`vllm_importance_sampling_clip_min` must be below `vllm_importance_sampling_clip_max`, whose default is 3. trl
    multiplies the loss by the ratio between the trainer's and vLLM's probabilities; the two settings are the lower and
    the upper bound of this ratio.

    Why it is bad: if the lower bound is not below the upper one, no ratio lies between the bounds.

    Without this rule: building the arguments raises ValueError.

    Source: trl 1.16 `grpo_config.py`; confirmed by running it.
    """
    low = spec.extra_value("trl", "vllm_importance_sampling_clip_min")
    high = spec.extra_value("trl", "vllm_importance_sampling_clip_max")
    top = 3.0 if high is None else high
    if isinstance(low, int | float) and isinstance(top, int | float) and low >= top:
        yield Finding(
            spec.extra_location("trl", "vllm_importance_sampling_clip_min", f"{low:g} is not below {top:g}"),
            "the correction of vLLM's probabilities has a lower bound that is not below the upper bound",
            write(f"vllm_importance_sampling_clip_min = {top / 2:g}"),
            (None if high is None else spec.extra_location("trl", "vllm_importance_sampling_clip_max"),),
        )


@rule("XP670", "vespo-with-whole-sequences")
def vespo(spec: Spec) -> Iterator[Finding]:
    """`vespo` with vLLM needs `vllm_importance_sampling_mode = token_mask` or `token_truncate`. These modes compute one
    correction of vLLM's probabilities for each token. The default, `sequence_mask`, computes one correction for each
    sequence.

    Why it is bad: vespo itself multiplies the corrections of a sequence's tokens into one weight, so it needs a
    correction for each token.

    Without this rule: ValueError in the trainer's constructor, after the model is loaded.

    Source: trl 1.16 `grpo_trainer.py` and its default of `vllm_importance_sampling_mode`; confirmed by running it.
    """
    mode = spec.extra_value("trl", "vllm_importance_sampling_mode")
    off = spec.extra_value("trl", "vllm_importance_sampling_correction") is False
    named = "vespo" in spec.losses
    if named and spec.flag("method.vllm") and not off and mode not in ("token_truncate", "token_mask"):
        location = spec.location("method.loss", "weighs sequences itself")
        yield Finding(
            location if mode is None else spec.extra_location("trl", "vllm_importance_sampling_mode"),
            "`vespo` with vLLM needs a token-level correction of vLLM's probabilities",
            "write `vllm_importance_sampling_mode = token_mask` in `extra trl`",
            (spec.label("method.vllm", "generated by vLLM"),),
            replace=None if mode is None else "vllm_importance_sampling_mode = token_mask",
        )


@rule("XP671", "completions-logged-nowhere")
def completions_repo(spec: Spec) -> Iterator[Finding]:
    """`log_completions_hub_repo`, the repository to which logged completions are uploaded, needs `log_completions`.

    Why it is bad: without logged completions there is nothing to upload.

    Without this rule: building the arguments raises ValueError.

    Source: trl 1.16 `grpo_config.py`; confirmed by running it.
    """
    if spec.extra_value("trl", "log_completions_hub_repo") is not None and not spec.flag("method.log_completions"):
        yield Finding(
            spec.extra_location("trl", "log_completions_hub_repo", "nothing is logged"),
            "`log_completions_hub_repo` is set, but completions are not logged",
            f"write `log_completions` in `method {spec.text('method')}`, or leave `log_completions_hub_repo` out",
            (spec.label("method", "the method"),),
        )


@rule("XP672", "shrinking-batch-of-groups")
def auto_batch(spec: Spec) -> Iterator[Finding]:
    """`auto_find_batch_size` cannot be used with grpo and rloo.

    Why it is bad: `auto_find_batch_size` shrinks the micro-batch when memory runs out, so a round of generation no
    longer contains complete groups.

    Without this rule: trl 1.16 raises ValueError when the arguments are built; trl 0.18 trains. When memory
    runs out, it takes a smaller micro-batch, and silently compares completions of different prompts.

    Source: trl 1.16 `grpo_config.py`, `rloo_config.py`; confirmed by running it.
    """
    if spec.extra_value("trl", "auto_find_batch_size") is True:
        yield Finding(
            spec.extra_location("trl", "auto_find_batch_size", "a smaller micro-batch would cut groups"),
            f"{spec.text('method')} does not work with `auto_find_batch_size`",
            write("auto_find_batch_size = false", ", and `micro` in `batch`"),
            (spec.label("method", "the method"),),
        )


@rule("XP485", "tokens-of-another-round")
def dapo_of_a_round(spec: Spec) -> Iterator[Finding]:
    """With `loss = dapo` on trl 0.24, `steps_per_generation` must equal the number of accumulation steps.

    Why it is bad: the loss of a step should be divided by the tokens of that step. trl 0.24 divides it by the tokens of
    the complete round of generation, which has `steps_per_generation` micro-batches. trl 1.16 corrects this.

    Without this rule: nothing is reported. If a round has twice as many micro-batches as a step, every gradient is half
    as large as it should be. If a round has half as many micro-batches as a step, every gradient is twice as large.

    Source: trl 0.24 `grpo_trainer.py` (`num_items_in_batch`, summed over the round); confirmed by running it.
    """
    if spec.get("method") != "grpo" or not spec.stack.facts.dapo_counts_a_round:
        return
    round_, step = spec.integer("method.steps_per_generation"), spec.integer("batch.accum")
    if spec.losses == ("dapo",) and round_ != step:
        yield Finding(
            spec.location("method.steps_per_generation", f"a round has {round_} micro-batches, a step has {step}"),
            f"`dapo` on {spec.stack.name} makes gradients {step / round_:g} times as large",
            write(f"steps_per_generation = {step}", ", or `loss = bnpo`"),
            (spec.label("method.loss", "the loss"), spec.label("target", "the target")),
        )
