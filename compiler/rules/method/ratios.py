"""Rules for grpo's importance ratios, and for the ways of scaling rewards and losses that the methods' papers prescribe
(XP677 to XP679, XP685, XP688, XP611).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import Path
from xpc.compiler.rules.core.conditions import all_of, grouped, has_value
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = all_of(grouped, has_value("method.generations"))

TWO_SIDED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
"""grpo's losses whose importance ratio is bounded by `delta`."""
RANGES: tuple[Path, ...] = ("method.epsilon", "method.epsilon_high", "method.delta")
OF_TOKENS = 0.01
"""An `epsilon` of at least this size is usual for importance ratios of tokens. For importance ratios of sequences,
GSPO's paper uses 3e-4 and 4e-4.
"""


def _losses(spec: Spec) -> list[str]:
    return [one.name for one in spec.weighted("method.loss")]


@rule("XP677", "ratio-bounded-below-one")
def bounded_below_one(spec: Spec) -> Iterator[Finding]:
    """`delta` must be at least 1: it is the largest importance ratio, and the ratio of an unchanged policy is 1. It
    should be above 1 + `epsilon_high` (without `epsilon_high`, 1 + `epsilon`); a smaller `delta` is only a warning.

    Why it is bad: a ratio above `delta` is replaced by the constant `delta`, which has no gradient. If `delta` is below
    1, this happens to every completion that is better than its group, so these completions are not learned. A `delta`
    between 1 and 1 + `epsilon_high` takes the place of `epsilon_high`, which then has no effect.

    Without this rule: nothing is reported; only completions that are worse than their group change the weights.

    Source: trl 1.16 `grpo_trainer.py` (`coef_1`); trl pull request 3434 asks for more than 1 + epsilon; confirmed by
    running it.
    """
    delta, losses = spec.get("method.delta"), _losses(spec)
    bounded = not losses or not set(losses).isdisjoint(TWO_SIDED)
    if isinstance(delta, int | float) and delta < 1 and bounded:
        yield Finding(
            spec.location("method.delta", "the ratio of an unchanged policy is 1"),
            f"better completions are not learned: `delta = {delta:g}` cuts every ratio",
            write("delta = 1.5"),
        )
    elif isinstance(delta, int | float) and bounded:
        high = spec.get("method.epsilon_high")
        range_ = high if high is not None else spec.get("method.epsilon")
        range_ = range_ if isinstance(range_, int | float) else 0.2
        if delta < 1 + range_:
            name = "epsilon" if high is None else "epsilon_high"
            yield Finding(
                spec.location("method.delta", f"1 + {name} = {1 + range_:g}"),
                f"`delta = {delta:g}` cuts ratios before `{name}` does",
                write(f"delta = {max(1.5, 2 * (1 + range_)):g}", ", or a smaller range"),
                severity="warning",
            )


@rule("XP678", "weights-bounded-below-one", "warning")
def weights_below_one(spec: Spec) -> Iterator[Finding]:
    """`loss = cispo` needs an `epsilon_high` above 1: in trl, `epsilon_high` of cispo is the largest importance ratio
    itself, and not its distance from 1. Without `epsilon_high`, trl uses `epsilon` (0.2).

    Why it is bad: cispo weighs tokens by their importance ratio. If every ratio is cut to 0.2, all tokens have the same
    weight.

    Without this rule: nothing is reported. With 0.2, gradients have a fifth of their size, and tokens of completions
    from an older policy are no longer weighed by their ratio.

    Source: trl 1.16 `grpo_trainer.py` (`clamped_ratios`); SkyRL pull request 553 names 5, from the paper of ScaleRL;
    confirmed by running it.
    """
    if "cispo" not in _losses(spec):
        return
    high = spec.get("method.epsilon_high")
    bound = spec.get("method.epsilon") if high is None else high
    bound = 0.2 if bound is None else bound
    if isinstance(bound, int | float) and bound < 1:
        yield Finding(
            spec.location("method.loss", "`epsilon_high` is the largest ratio"),
            f"cispo clips every importance ratio to at most {bound:g}",
            write("epsilon_high = 5", ", a bound of the ratio itself"),
        )


@rule("XP679", "clipping-of-another-level", "warning")
def clipping_of_another_level(spec: Spec) -> Iterator[Finding]:
    """`level = sequence` needs a much smaller `epsilon` than `level = token`. The default of `epsilon`, 0.2, is made
    for `level = token`.

    Why it is bad: the ratio of a sequence is a mean over its tokens and stays near 1, so a range of 0.2 clips nothing.

    Without this rule: nothing is reported; no ratio is ever clipped.

    Source: trl 1.16 `grpo_trainer.py` (`importance_sampling_level`); trl issue 3834; confirmed by running it.
    """
    epsilon = spec.get("method.epsilon")
    epsilon = 0.2 if epsilon is None else epsilon
    if spec.get("method.level") == "sequence" and isinstance(epsilon, int | float) and epsilon >= OF_TOKENS:
        yield Finding(
            spec.location("method.level", "one ratio for each sequence"),
            f"`epsilon = {epsilon:g}` is a range for the ratios of tokens",
            "write `epsilon = 3e-4` and `epsilon_high = 4e-4`, the values of GSPO's paper",
        )


@rule("XP685", "rewards-scaled-against-the-loss", "warning")
def scaled_against_the_loss(spec: Spec) -> Iterator[Finding]:
    """`loss = dr_grpo` needs `scale_rewards = none`, as in the paper: by default, trl divides by the standard deviation
    of a group's rewards.

    Why it is bad: the paper leaves out two divisions: by the length of a completion, and by the standard deviation of
    the rewards of its group. trl's `dr_grpo` leaves out only the division by the length.

    Without this rule: nothing is reported; very easy and very hard prompts weigh more than others.

    Source: trl 1.16 `grpo_trainer.py` (`scale_rewards`); trl pull request 3256; confirmed by running it.
    """
    if _losses(spec) == ["dr_grpo"] and not spec.written("method.scale_rewards"):
        yield Finding(
            spec.location("method.loss", "rewards are divided by the standard deviation of their group"),
            "`loss = dr_grpo` alone is not Dr. GRPO: the rewards are scaled",
            write("scale_rewards = none", ", or `scale_rewards = group` to say that this is intended"),
        )


@rule("XP688", "upper-range-below-the-lower", "warning")
def upper_below_lower(spec: Spec) -> Iterator[Finding]:
    """`epsilon_high` should not be smaller than `epsilon`: DAPO's clip-higher raises the upper range, as in `epsilon =
    0.2` and `epsilon_high = 0.28`. For the loss cispo, both settings mean something else.

    Why it is bad: with a smaller `epsilon_high`, an update can lower the probability of a token by more than it can
    raise it, so exploration ends early. Usually the two numbers are in the wrong order.

    Without this rule: nothing is reported.

    Source: trl 1.16 `grpo_trainer.py` (`epsilon_low`, `epsilon_high`); DAPO (arXiv:2503.14476), section 3.1.
    """
    high, low = spec.get("method.epsilon_high"), spec.get("method.epsilon")
    low = 0.2 if low is None else low
    if not isinstance(high, int | float) or not isinstance(low, int | float) or "cispo" in _losses(spec):
        return
    if spec.written("method.epsilon_high") and high < low and spec.get("method.level") != "sequence":
        yield Finding(
            spec.location("method.epsilon_high", f"`epsilon` is {low:g}"),
            f"importance ratios may rise by {high:g} and fall by {low:g}",
            write(f"epsilon_high = {1.4 * low:g}", ", or leave it out"),
            (spec.label("method.epsilon", "the lower range"),),
        )


@rule("XP611", "ratio-that-is-always-one", "note")
def always_one(spec: Spec) -> Iterator[Finding]:
    """`epsilon`, `epsilon_high` and `delta` need several optimizer steps on the same completions. A run takes several
    steps if `steps_per_generation` is larger than `accum`, or if `iterations` is larger than 1.

    Why it is bad: if completions are used for a single step, the model in this step is still the one that wrote them.
    So every importance ratio is 1, and nothing is ever clipped.

    Without this rule: nothing is reported, and the range that the spec states has no effect. If the spec states no
    range, or the default one, this rule reports nothing.

    Source: trl 1.16 `grpo_trainer.py` (`old_per_token_logps`), trl 0.18 likewise; DAPO issue 23.
    """
    rounds, passes = spec.get("method.steps_per_generation"), spec.get("method.iterations") or 1
    accum = spec.integer("batch.accum")
    if passes != 1 or (isinstance(rounds, int) and rounds > accum) or spec.flag("method.vllm"):
        return
    fields = spec.fields()  # XP127 reports a range that the stack does not support
    written = [one for one in RANGES if spec.written(one) and one[7:] in fields]
    path = next((one for one in written if spec.get(one) != fields[one[7:]].effective), None)
    if path is not None:
        yield Finding(
            spec.location(path, "one optimizer step for each round of completions"),
            f"`{path.rpartition('.')[2]}` never clips a ratio, because every ratio is 1",
            f"write `steps_per_generation = {4 * accum}`, or leave the setting out",
            (spec.label("batch.accum", "micro-batches in a step"),),
        )


DROPOUTS = (
    "dropout", "attention_dropout", "hidden_dropout", "resid_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop",
)  # fmt: skip
"""Keys of config.json that state the share of numbers that a model drops while it trains."""


@rule("XP628", "dropout-in-ratios", "warning")
def dropout_in_ratios(spec: Spec) -> Iterator[Finding]:
    """Adapters or models with dropout should not be trained with importance ratios. A run computes importance ratios if
    it takes several optimizer steps on the same completions, or if vLLM generates the completions. For grpo and rloo,
    the default of `dropout` is 0. A model has dropout if its config.json says so, as that of GPT-2 (`resid_pdrop`).

    Why it is bad: the old and the new probabilities are computed with different neurons dropped, so ratios differ from
    1 before the model has changed, and tokens are clipped at random.

    Without this rule: nothing is reported.

    Source: trl 1.16 `grpo_trainer.py` (`old_per_token_logps` of a model in training mode); confirmed by running it.
    """
    dropout, rounds = spec.get("lora.dropout") if spec.lora else 0, spec.get("method.steps_per_generation")
    own = next((name for name in DROPOUTS if spec.model.config.get(name)), None)
    several = isinstance(rounds, int) and rounds > spec.integer("batch.accum")
    reused = several or (spec.get("method.iterations") or 1) > 1 or spec.flag("method.vllm")
    if not reused or spec.extra_value("trl", "disable_dropout") is True:
        return
    if dropout:
        yield Finding(
            spec.location("lora.dropout"),
            "dropout of the adapters changes the importance ratios",
            write("dropout = 0"),
            (spec.label("method", "the method"),),
        )
    if own is not None:
        yield Finding(
            spec.model.label,
            f"dropout of the model (`{own}` in its config.json) changes the importance ratios",
            "write `extra trl { disable_dropout = true }`",
            (spec.label("method", "the method"),),
        )
