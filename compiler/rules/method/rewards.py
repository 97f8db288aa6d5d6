"""Rules about the rewards of grpo and rloo (XP198, XP612, XP662, XP663, XP674, XP689, XP696)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.kinds import Weighted
from xpc.compiler.language.rewards import REWARDS
from xpc.compiler.rules.core.conditions import all_of, grouped, has_value
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.grammar.record import evolve

WHEN = all_of(grouped, has_value("method.generations"))

WITH_SOLUTION = ("accuracy", "cosine", "len", "length")
"""The registered rewards that read the column `solution`."""


@rule("XP662", "no-reward")
def no_reward(spec: Spec) -> Iterator[Finding]:
    """grpo and rloo need a reward: a registered function, or a function of a file; grpo also accepts an environment
    with a method `get_reward`.

    Why it is bad: without a reward, the trainer cannot know which completion is better.

    Without this rule: trl 1.16 raises ValueError, trl 0.18 reports a missing argument, both after the model is loaded.

    Source: trl 1.16 `grpo_trainer.py`, `rloo_trainer.py`; confirmed by running it.
    """
    if spec.weighted("method.rewards"):
        return
    environment = next(iter(spec.weighted("method.environment")), None)
    if environment is None:
        yield Finding(
            spec.location("method", "needs reward functions"),
            f"{spec.text('method')} has no reward",
            'write `rewards = [accuracy]`, or your own function: `rewards = ["rewards.py:tag_count"]`',
        )
        return
    from xpc.compiler.rules.core.reward_files import methods

    name = environment.function or ""
    found = methods(spec.bundled.get(environment.file or "", b""), name)
    if found is not None and "get_reward" not in found:
        yield Finding(
            spec.location("method.environment", "has no `get_reward`"),
            f"nothing is rewarded: the environment `{name}` has no method `get_reward`",
            f"write `rewards = [accuracy]`, or `def get_reward(self) -> float:` in `{name}`",
        )


def _without_solution(spec: Spec, reward: str) -> Iterator[Finding]:
    for source in spec.sources:
        if source.found is None or (source.only and "solution" in (source.columns or ())):
            continue
        there = source.columns or () if source.only else source.found
        if "solution" not in there:
            yield Finding(
                spec.location("method.rewards", f"`{reward}` needs `solution`"),
                f"the rows have no column `solution`, which the reward `{reward}` needs",
                "rename the column with the right answer to `solution`, or write your own function: "
                '`rewards = ["rewards.py:right"]`',
                (source.label,),
            )
            return


@rule("XP674", "reward-that-cannot-be-called")
def uncallable(spec: Spec) -> Iterator[Finding]:
    """A reward function must accept all keyword arguments that the trainer passes: `completions`, other values of the
    trainer, and the columns of the rows, also of evaluation rows. An argument that the spec sets must be a parameter in
    the function's signature. The rewards `accuracy`, `cosine` and `len` need a column `solution`. xpc reads only the
    signature, so a decorated or assigned function is checked only at the launch.

    Why it is bad: Python raises an error if a call passes a keyword argument that the function does not accept, or
    omits a parameter without a default. A function with `**kwargs` accepts all keyword arguments.

    Without this rule: TypeError, after the model is loaded and the first completions are generated.

    Source: trl 1.16, 0.24 and 0.18 `grpo_trainer.py` (`_calculate_rewards`); confirmed by running it.
    """
    for reward in spec.weighted("method.rewards"):
        if reward.file is not None:
            yield from _miscalled(spec, reward)
        elif reward.name in WITH_SOLUTION:
            yield from _without_solution(spec, reward.name)


def _miscalled(spec: Spec, reward: Weighted) -> Iterator[Finding]:
    """Yield a finding if Python would refuse the call of the reward function."""
    from xpc.compiler.rules.core.reward_files import signature

    known = signature(spec.bundled.get(reward.file or "", b""), reward.function or "")
    if known is None:
        return
    location, given = spec.location("method.rewards"), spec.stack.facts.reward_given
    takes, needs, others = known
    stated = {name for name, _ in reward.arguments}
    # an argument that is not a parameter is reported even if the function has `**kwargs`, because it may be a
    # misspelling
    foreign = sorted(stated - set(takes))
    if foreign:
        yield Finding(
            evolve(location, text=f"`{reward.function}` has no parameter {', '.join(foreign)}"),
            f"the reward `{reward.function}` gets the argument `{foreign[0][:40]}`, but has no such parameter",
            f"give the function a parameter `{foreign[0][:40]}`, or call it without this argument",
        )
        return
    for source in spec.sources:
        first, *columns = source.columns or ("prompt",)
        if not source.only:
            columns = [one for one in source.found or () if one != first]
        lacks = sorted(needs - stated - {*given, *columns}) if source.only or source.found is not None else []
        extra = [one for one in (*given, *columns) if one not in takes and not others]
        if lacks:
            listed = ", ".join(f"`{one}`" for one in columns) or "only the prompt column"
            yield Finding(
                evolve(location, text=f"`{reward.function}` needs {', '.join(lacks)}"),
                f"the rows have no column `{lacks[0][:40]}`, which the reward `{reward.function}` needs",
                f"the reward can take {', '.join(given[:2])} and the columns of the rows: {listed}",
                (source.label,),
            )
            return
        if extra:
            arguments = ", ".join([*(one for one in takes if one not in ("args", "kwargs")), "**kwargs"])
            yield Finding(
                evolve(location, text=f"`{reward.function}` has no parameter for {', '.join(extra[:3])}"),
                f"the reward `{reward.function}` is called with `{extra[0]}`, which it does not accept",
                f"begin the function with `def {reward.function}({arguments}):`",
            )
            return


ANSWERS = (
    "answer", "answers", "solution", "solutions", "ground_truth", "target", "targets", "label", "labels", "reference",
    "references", "gold", "expected", "test_cases", "tests",
)  # fmt: skip
"""Usual names of columns with reference answers. A reward compares the completions with these answers."""


@rule("XP198", "reward-without-its-column", "warning")
def without_its_column(spec: Spec) -> Iterator[Finding]:
    """If a reward function has a parameter with the name of a usual column and the default None, such as `answer=None`,
    the rows should have this column.

    Why it is bad: a parameter without a column is None for each row, so the reward is the same for right and wrong
    completions.

    Without this rule: nothing is reported.

    Source: trl 1.16, 0.24 and 0.18 `grpo_trainer.py` (`_calculate_rewards`) pass only the columns that exist.
    """
    given = spec.stack.facts.reward_given
    if any(one.found is None for one in spec.data):
        return
    for reward in spec.weighted("method.rewards") if any(one.path for one in spec.data) else ():
        if reward.file is None:
            continue
        from xpc.compiler.rules.core.reward_files import optional, signature

        code, name = spec.bundled.get(reward.file, b""), reward.function or ""
        known, stated = signature(code, name), {argument for argument, _ in reward.arguments}
        takes = {*(() if known is None else known[0])} & {*ANSWERS}
        lacks = sorted(takes & optional(code, name) - stated - {*given})
        for source in spec.data:
            _, *rest = source.columns or ("prompt",)
            # a function may accept several names for the same column (`answer`, `solution`); then the rows need only
            # one of these columns
            if lacks and not takes & {*(rest if source.only else source.found or ())}:
                yield Finding(
                    spec.location("method.rewards", f"`{lacks[0]}` is always None"),
                    f"the reward `{reward.function}` reads `{lacks[0]}`, and the rows have no such column",
                    "rename the parameter or the column: " + ", ".join(f"`{one}`" for one in (source.found or ())[:8]),
                    (source.label,),
                )
                break


@rule("XP663", "rewards-of-no-weight")
def no_weight(spec: Spec) -> Iterator[Finding]:
    """At least one reward needs a weight other than 0.

    Why it is bad: with all weights 0 every completion scores the same, so every advantage is 0.

    Without this rule: nothing is reported; the loss is 0 and no weight changes.

    Source: trl 1.16 and 0.18 `grpo_trainer.py` (rewards are summed by their weights); confirmed by running it.
    """
    rewards = spec.weighted("method.rewards")
    if rewards and all(one.weight == 0 for one in rewards):
        yield Finding(
            spec.location("method.rewards", "all weights are 0"),
            "every reward has the weight 0",
            f"write `rewards = [{rewards[0].name}(weight=1)]`"
            if rewards[0].file is None
            else "leave the weight out, or write `weight=1`",
        )


@rule("XP689", "reward-counted-twice", "warning")
def counted_twice(spec: Spec) -> Iterator[Finding]:
    """A list of rewards should not contain the same function twice with the same arguments.

    Why it is bad: the rewards are summed, so the function has the sum of both weights. Usually, the second entry was
    meant to name another function.

    Without this rule: nothing is reported.

    Source: trl 1.16 and 0.18 `grpo_trainer.py` (rewards are summed by their weights).
    """
    seen = set()
    for one in spec.weighted("method.rewards"):
        key = (one.name, one.file, one.function, one.arguments)
        if key in seen:
            name = one.function or one.name
            yield Finding(
                spec.location("method.rewards", f"`{name[:60]}` stands here twice"),
                f"the reward `{name[:60]}` is counted twice",
                f"leave one of the two out, or give `{name[:60]}` the sum of both weights",
            )
            return
        seen.add(key)


@rule("XP696", "right-answers-punished", "warning")
def punished(spec: Spec) -> Iterator[Finding]:
    """The weight of a built-in reward should not be negative. The built-in functions that punish, such as
    `repetition_penalty`, already return negative numbers. `cosine` should give every right answer more than any wrong
    one: `min_value_correct` must be above `min_value_wrong`.

    Why it is bad: with a negative weight the model learns to avoid what the function rewards, such as right answers. So
    it does if a short wrong answer gets more than a long right one.

    Without this rule: nothing is reported.

    Source: trl 1.16 and 0.18 `grpo_trainer.py` (rewards are multiplied by their weights); confirmed by running it.
    """
    for one in spec.weighted("method.rewards"):
        if one.weight is not None and one.weight < 0 and one.file is None and one.name in REWARDS:
            yield Finding(
                spec.location("method.rewards", f"{one.name}: {REWARDS[one.name]}"),
                f"the weight of `{one.name}` is negative, so the model learns to get a low reward",
                f"write `{one.name}(weight={-one.weight:g})`",
            )
            return
        stated = dict(one.arguments)
        right, wrong = stated.get("min_value_correct", 0.5), stated.get("min_value_wrong", 0.0)
        if one.file is not None or one.name != "cosine" or isinstance(right, str) or isinstance(wrong, str):
            continue
        if right <= wrong:
            yield Finding(
                spec.location("method.rewards", f"long right answers get {right:g}, short wrong ones {wrong:g}"),
                "`cosine` rewards some wrong answers more than right ones",
                "write `min_value_correct` above `min_value_wrong`, such as `cosine(min_value_wrong=0)`",
            )


@rule("XP612", "punishment-that-never-comes", "warning")
def never_punished(spec: Spec) -> Iterator[Finding]:
    """A built-in reward that punishes must be able to return a number below 0. `soft_overlong_punishment` punishes only
    completions longer than `max_completion_len - soft_punish_cache`, so `max_completion` must be larger than this
    difference. By default, `max_completion_len` is `max_completion`, and `soft_punish_cache` is a quarter of
    `max_completion_len`. `repetition_penalty` needs a `max_penalty` below 0.

    Why it is bad: with a `max_completion` that is too small, the reward is 0 for every completion. With a positive
    `max_penalty`, repetitions are rewarded.

    Without this rule: nothing is reported.

    Source: the runtime's `rewards.py`, which computes what DAPO (arXiv:2503.14476) and Open-R1 do.
    """
    longest = spec.get("method.max_completion")
    for one in spec.weighted("method.rewards"):
        if one.file is not None:
            continue
        stated = dict(one.arguments)
        limit = stated.get("max_completion_len", longest)
        cache = stated.get("soft_punish_cache", max(1, limit // 4) if isinstance(limit, int) else 0)
        penalty = stated.get("max_penalty", -1.0)
        if one.name == "soft_overlong_punishment" and isinstance(limit, int) and isinstance(cache, int):
            if isinstance(longest, int) and longest <= limit - cache:
                yield Finding(
                    spec.location(
                        "method.rewards",
                        f"punishes from {limit - cache + 1:,} tokens on; completions have at most {longest:,}",
                    ),
                    "`soft_overlong_punishment` is 0 for every completion",
                    f"write `soft_overlong_punishment(max_completion_len={longest})`",
                    (spec.label("method.max_completion"),),
                )
        elif one.name == "repetition_penalty" and isinstance(penalty, int | float) and penalty >= 0:
            yield Finding(
                spec.location("method.rewards", f"max_penalty = {penalty:g}"),
                "`repetition_penalty` rewards repetitions"
                if penalty
                else "`repetition_penalty` is 0 for every completion",
                f"write `repetition_penalty(max_penalty=-{penalty or 1:g})`",
            )
