"""Reinforcement with generated completions (XP660 to XP672, XP674). sampling.py is for all that generate."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from xpc.compiler.language.kinds import NEVER
from xpc.compiler.rules.core.conditions import both, given, grouped
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.grammar.record import evolve

WHEN = both(grouped, given("method.generations"))

NAMES = {
    "importance_sampling_level": ("token", "sequence"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
    "vllm_importance_sampling_mode": ("sequence_mask", "sequence_truncate", "token_mask", "token_truncate"),
}
"""Arguments of trl 1.16 that its classes take any text for, and its trainer only these."""
SUMMED = ("bnpo", "dr_grpo", "dapo", "cispo")
"""grpo's losses that add up tokens, so that a ratio of whole sequences weighs them by their length."""


@rule("XP660", "group-does-not-divide")
def group_does_not_divide(spec: Spec) -> Iterator[Finding]:
    """One round of generation is micro-batch x processes x steps_per_generation completions, and holds whole groups.

    A group is the completions of one prompt; its rewards are compared with each other. Today: ValueError when the
    arguments are built. Source: trl 1.16 `grpo_config.py`, `rloo_config.py`; trl 0.18 `grpo_config.py`; executed.
    """
    generations, micro = spec.integer("method.generations"), spec.integer("batch.micro")
    steps, world = spec.integer("method.steps_per_generation"), spec.hardware.world
    if (micro * world * steps) % generations == 0:
        return
    text = f"{micro} x {world} x {steps} = {micro * world * steps} completions a round"
    from xpc.compiler.plan.divisors import nearest as nearest_divisor

    nearest = nearest_divisor(generations, micro, world, steps)
    related = (spec.label("batch.micro"), spec.label("batch.gbs"), spec.label("method.steps_per_generation"))
    written = spec.written("method.generations")
    yield Finding(
        spec.place("method.generations", text) if written else spec.place("batch.gbs", text),
        f"groups of {generations} completions do not fill a round of {micro * world * steps}",
        f"write `generations = {nearest}`" if nearest else f"write `gbs = {generations * world}`",
        related if written else (spec.label("method", f"{generations} completions a prompt"),),
        replace=f"generations = {nearest}" if nearest and written else None,
    )


@rule("XP661", "evaluation-group-does-not-divide")
def eval_group(spec: Spec) -> Iterator[Finding]:
    """An evaluation batch of all processes holds whole groups of completions, too.

    `num_generations_eval` says how many completions a prompt gets in evaluation, where not as many as in training.
    Today: ValueError when the arguments are built. Source: trl 1.16 `grpo_config.py`, `rloo_config.py`; trl 0.18
    `grpo_config.py`; executed.
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
        spec.extra_place("trl", "num_generations_eval")
        if own
        else spec.label("eval.micro") or spec.place("method.generations"),
        f"groups of {size} completions do not fill an evaluation batch of {micro} x {world} = {micro * world}",
        f"write `{better}`" if spec.written("eval.micro") else f"write `eval({better[5:].replace(' ', '')})`",
        (spec.label("method.generations", "completions of one prompt"),),
        replace=better if spec.written("eval.micro") and not own else None,
    )


@rule("XP662", "no-reward")
def no_reward(spec: Spec) -> Iterator[Finding]:
    """Reinforcement needs a reward: a registered function, or one of a file.

    Today: ValueError (trl 1.16), or a missing argument (trl 0.18), after the model is loaded. Source: trl 1.16
    `grpo_trainer.py`, `rloo_trainer.py`; executed.
    """
    if not spec.weighted("method.rewards") and "method.rewards" not in spec.wrong:
        yield Finding(
            spec.place("method", "needs reward functions"),
            f"{spec.text('method')} has no reward",
            'write `rewards = [accuracy]`, or a function of your own: `rewards = ["rewards.py:tag_count"]`',
        )


@rule("XP674", "reward-that-cannot-be-called")
def uncallable(spec: Spec) -> Iterator[Finding]:
    """A reward function of a file is called with `completions`, with what else the trainer has, and with the columns of
    the rows, all by name. It takes those that it reads, and `**kwargs` for the others.

    The function's head is read, and nothing of it is executed; one that is decorated or assigned is left to the
    launch. Today: TypeError, once the model is loaded and the first completions are generated. Source: trl 1.16, 0.24
    and 0.18 `grpo_trainer.py` (`_calculate_rewards`); executed.
    """
    given = spec.stack.facts.reward_given
    for reward in spec.weighted("method.rewards"):
        if reward.file is None:
            continue
        from xpc.compiler.rules.core.reward_files import head

        known = head(spec.bundled.get(reward.file, b""), reward.function or "")
        if known is None:
            continue
        place = spec.place("method.rewards")
        takes, needs, others = known
        for source in spec.data:
            first, *rest = source.columns or ("prompt",)
            columns = (
                rest if source.only else None if source.found is None else [one for one in source.found if one != first]
            )
            lacks = sorted(needs - {*given, *columns}) if columns is not None else []
            extra = [one for one in (*given, *(columns or ())) if one not in takes and not others]
            if lacks:
                listed = ", ".join(f"`{one}`" for one in columns or ()) or "no column beside the prompt"
                yield Finding(
                    evolve(place, text=f"`{reward.function}` needs {', '.join(lacks)}"),
                    f"the rows have no `{lacks[0][:40]}` for the reward `{reward.function}`",
                    f"it can take {', '.join(given[:2])}, and the columns of the rows: {listed}",
                    (source.label,),
                )
                break
            if extra:
                arguments = ", ".join([*(one for one in takes if one not in ("args", "kwargs")), "**kwargs"])
                yield Finding(
                    evolve(place, text=f"{', '.join(extra[:3])} have no place in `{reward.function}`"),
                    f"the reward `{reward.function}` takes no `{extra[0]}`, and is called with it",
                    f"begin the function with `def {reward.function}({arguments}):`",
                )
                break


@rule("XP663", "rewards-of-no-weight")
def no_weight(spec: Spec) -> Iterator[Finding]:
    """Rewards that all weigh 0 tell no completion from another: every advantage is 0.

    Today, silently: the loss is 0 and the weights are not moved. Source: trl 1.16 and 0.18 `grpo_trainer.py` (rewards
    are summed by their weights); executed.
    """
    rewards = spec.weighted("method.rewards")
    if rewards and all(one.weight == 0 for one in rewards):
        yield Finding(
            spec.place("method.rewards", "all of them count 0"),
            "every reward has the weight 0",
            f"write `rewards = [{rewards[0].name}(weight=1)]`"
            if rewards[0].file is None
            else "leave the weight out, or write `weight=1`",
        )


@rule("XP664", "moving-reference-that-is-not-there")
def sync_without_reference(spec: Spec) -> Iterator[Finding]:
    """With `beta = 0`, grpo's default in trl 1.16, there is no reference that could move.

    Today: trl 1.16 raises ValueError in the trainer's constructor, trl 0.18 moves nothing, in silence. Source:
    `grpo_trainer.py` of both, `rloo_trainer.py`, `callbacks.py`; executed.
    """
    if spec.flag("method.sync_reference") and spec.get("method.beta") == 0:
        yield Finding(
            spec.place("method.sync_reference", "no reference is kept"),
            "the reference cannot move: `beta` is 0",
            "write `beta = 0.04`, or leave `sync_reference` out",
            (spec.label("method.beta", "no KL term"),),
        )


@rule("XP667", "unknown-name-of-grpo")
def unknown_name(spec: Spec) -> Iterator[Finding]:
    """Some arguments of grpo take any text, and its trainer knows a few.

    Today: ValueError in the first step, after the first completions were generated and rewarded. Source: trl 1.16
    `grpo_trainer.py`; executed.
    """
    for name, known in NAMES.items():
        value = spec.extra_value("trl", name)
        if value is not None and value not in known:
            yield Finding(
                spec.extra_place("trl", name, "one of " + ", ".join(known)),
                f"`{str(value)[:40]}` is no `{name}`",
                write(f"{name} = {known[0]}"),
            )


@rule("XP668", "level-of-another-loss", "warning")
def level_and_loss(spec: Spec) -> Iterator[Finding]:
    """The ratio of probabilities is taken of tokens or of whole sequences, and not every loss fits both.

    Losses that add up tokens weigh whole sequences by their length; luspo is made for sequences, vespo for tokens.
    Today: a warning in the log. Source: trl 1.16 `grpo_trainer.py`; executed.
    """
    level = spec.extra_value("trl", "importance_sampling_level") or "token"
    for one in spec.weighted("method.loss"):
        if one.name == "luspo" and level == "token":
            better = "sequence"
        elif level == "sequence" and one.name in ("vespo", *SUMMED):
            better = "token"
        else:
            continue
        written = spec.extra_value("trl", "importance_sampling_level") is not None
        yield Finding(
            spec.extra_place("trl", "importance_sampling_level")
            if written
            else spec.place("method.loss", "made for sequences"),
            f"`{one.name}` over ratios of {level}s",
            f"say `importance_sampling_level = {better}` in `extra trl`",
            (spec.label("method.loss", "the loss") if written else None,),
            replace=f"importance_sampling_level = {better}" if written else None,
        )


@rule("XP669", "correction-without-bounds")
def correction(spec: Spec) -> Iterator[Finding]:
    """The correction for vLLM's probabilities clips its ratio between two bounds, of which one is enough.

    `vllm_importance_sampling_clip_max` is 3 unless it says otherwise. Today: ValueError when the arguments are built,
    for bounds that cross. Source: trl 1.16 `grpo_config.py`; executed.
    """
    low = spec.extra_value("trl", "vllm_importance_sampling_clip_min")
    high = spec.extra_value("trl", "vllm_importance_sampling_clip_max")
    top = 3.0 if high is None else high
    if isinstance(low, int | float) and isinstance(top, int | float) and low >= top:
        yield Finding(
            spec.extra_place("trl", "vllm_importance_sampling_clip_min", f"{low:g} is not below {top:g}"),
            "the bounds of the correction cross",
            write(f"vllm_importance_sampling_clip_min = {top / 2:g}"),
            (None if high is None else spec.extra_place("trl", "vllm_importance_sampling_clip_max"),),
        )


@rule("XP670", "vespo-with-whole-sequences")
def vespo(spec: Spec) -> Iterator[Finding]:
    """vespo weighs sequences itself, so the correction for vLLM's probabilities must be one of tokens; unset it is not.

    Today: ValueError in the trainer's constructor, after the model is loaded. Source: trl 1.16 `grpo_trainer.py`; its
    default of `vllm_importance_sampling_mode` is `sequence_mask`. executed.
    """
    mode = spec.extra_value("trl", "vllm_importance_sampling_mode")
    off = spec.extra_value("trl", "vllm_importance_sampling_correction") is False
    named = "vespo" in spec.losses
    if named and spec.flag("method.vllm") and not off and mode not in ("token_truncate", "token_mask"):
        place = spec.place("method.loss", "weighs sequences itself")
        yield Finding(
            place if mode is None else spec.extra_place("trl", "vllm_importance_sampling_mode"),
            "`vespo` with vLLM needs a correction of tokens",
            "say `vllm_importance_sampling_mode = token_mask` in `extra trl`",
            (spec.label("method.vllm", "generated by vLLM"),),
            replace=None if mode is None else "vllm_importance_sampling_mode = token_mask",
        )


@rule("XP671", "completions-logged-nowhere")
def completions_repo(spec: Spec) -> Iterator[Finding]:
    """`log_completions_hub_repo` says where logged completions go, and none are logged.

    Today: ValueError when the arguments are built. Source: trl 1.16 `grpo_config.py`; executed.
    """
    if spec.extra_value("trl", "log_completions_hub_repo") is not None and not spec.flag("method.log_completions"):
        yield Finding(
            spec.extra_place("trl", "log_completions_hub_repo", "nothing is logged"),
            "a repository for completions that are not logged",
            f"write `log_completions` in `method {spec.text('method')}`, or leave it out",
            (spec.label("method", "the method"),),
        )


@rule("XP672", "shrinking-batch-of-groups")
def auto_batch(spec: Spec) -> Iterator[Finding]:
    """A micro-batch that is halved when memory runs out no longer fills rounds of whole groups.

    Today: ValueError when the arguments are built (trl 1.16); trl 0.18 goes on until memory runs out, and then compares
    completions of different prompts. Source: trl 1.16 `grpo_config.py`, `rloo_config.py`; executed.
    """
    if spec.extra_value("trl", "auto_find_batch_size") is True:
        yield Finding(
            spec.extra_place("trl", "auto_find_batch_size", "groups would be cut"),
            f"{spec.text('method')} cannot look for a micro-batch that fits",
            write("auto_find_batch_size = false", ", and `micro` in `batch`"),
            (spec.label("method", "the method"),),
        )


@rule("XP485", "tokens-of-another-round")
def dapo_of_a_round(spec: Spec) -> Iterator[Finding]:
    """`dapo` divides the loss of a step by the tokens of the step; trl 0.24 divides by those of a whole round.

    A round of generation is `steps_per_generation` micro-batches, a step is the accumulation. Where a round is twice as
    long, every gradient is half as large; where it is half as long, twice. Today, silently. Source: trl 0.24
    `grpo_trainer.py` (`num_items_in_batch`, summed over the round); executed. trl 1.16 rescales it.
    """
    if spec.get("method") != "grpo" or not spec.stack.facts.dapo_counts_a_round:
        return
    round_, step = spec.integer("method.steps_per_generation"), spec.integer("batch.accum")
    if spec.losses == ("dapo",) and round_ != step:
        yield Finding(
            spec.place("method.steps_per_generation", f"{round_} micro-batches a round, {step} a step"),
            f"`dapo` of {spec.stack.name} makes gradients {step / round_:g} times as large",
            write(f"steps_per_generation = {step}", ", or `loss = bnpo`"),
            (spec.label("method.loss", "the loss"), spec.label("target", "the target")),
        )
