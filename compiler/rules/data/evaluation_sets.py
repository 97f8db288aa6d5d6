"""Rules about separate evaluation data, and several named evaluation sets (XP525, XP526)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.data.shapes import token_columns
from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.optimizers import METRIC_SCHEDULES
from xpc.compiler.rules.core.conditions import evaluation_rows
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.rules.method.sft import CONVERSATIONS
from xpc.compiler.rules.optimizer.best_model import SPEED, reported
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import DataSource

WHEN = evaluation_rows

LOAD, METRIC = "load_best_model_at_end", "metric_for_best_model"


@rule("XP525", "evaluation-over-other-tokens")
def other_tokens(spec: Spec) -> Iterator[Finding]:
    """A model that is trained only on completions must be evaluated on rows that also have a prompt and a completion,
    or on tokenized rows with a `completion_mask` or `labels`. With `assistant_only`, it may also be evaluated on
    conversations, where only the assistant's turns count.

    Why it is bad: for rows without a separate completion, the evaluation loss is a mean over all tokens, including the
    tokens of the questions. So the loss does not measure how well the model writes completions.

    Without this rule: evaluation rows without a completion have no completion mask, so TRL's collator silently masks
    nothing.

    Source: trl 1.16 and 0.18 `sft_trainer.py` (`DataCollatorForLanguageModeling`); confirmed by running it.
    """
    shapes = {source.shape for source in spec.data}
    masked = shapes == {"prompt_completion"} and spec.get("method.completion_only") is not False
    if spec.text("method") != "sft" or not masked:
        return
    legal = ("prompt_completion", *(CONVERSATIONS if spec.flag("method.assistant_only") else ()))
    for one in spec.evaluated:
        other = next((source for source in one.sources if source.shape not in legal and not _masked(source)), None)
        if other is not None:
            yield Finding(
                one.label,
                f"`{one.name}` contains {other.shape}, but the loss is computed over completions",
                "evaluate on prompts and completions, or write `method sft(completion_only=false)`",
                (spec.data[0].label,),
            )


def _masked(source: DataSource) -> bool:
    """Whether the rows are tokens, and one of their columns says which tokens are learned."""
    parts = token_columns(source.columns) if source.shape == "tokens" and source.columns else {}
    return not parts.keys().isdisjoint(("completion_mask", "labels"))


@rule("XP526", "metric-of-no-set")
def metric_of_no_set(spec: Spec) -> Iterator[Finding]:
    """With several evaluation sets, the metric that chooses the best checkpoint, and the metric that a schedule
    follows, must contain the name of a set. For example, the set `easy` reports `eval_easy_loss`, and no set reports
    `eval_loss`.

    Why it is bad: the run fails at its first evaluation, perhaps hours after its start.

    Without this rule: KeyError at the first evaluation.

    Source: transformers 5.23 and 4.52.3 `Trainer.evaluate`, `Trainer._determine_best_metric`; confirmed by running it.
    """
    metric = spec.extra_value("trl", METRIC)
    stepping, best = spec.text("schedule") in METRIC_SCHEDULES, spec.extra_value("trl", LOAD) is True
    compared = isinstance(metric, str) or stepping or best or spec.get("eval.patience") is not None
    if not spec.sets or spec.amount("eval.every") == NEVER or not compared:
        return

    known = reported(spec)
    short = str(metric).removeprefix("eval_") if isinstance(metric, str) else ""
    for name in spec.sets:
        if short.startswith(f"{name}_") and (known is None or short[len(name) + 1 :] in (*SPEED, *known)):
            return
    written = f'{METRIC} = "{spec.sets[0]}_loss"'
    if isinstance(metric, str):
        location = spec.extra_location("trl", METRIC, "names no set")
    elif best:
        location = spec.extra_location("trl", LOAD, "compares the losses of one evaluation set")
    else:
        location = spec.location("schedule", "follows the loss of one evaluation set")
    yield Finding(
        location,
        f"no evaluation set reports `{metric[:60]}`"
        if isinstance(metric, str)
        else "there are several evaluation sets, and `metric_for_best_model` names none of them",
        f"write `{written}`"
        if isinstance(metric, str)
        else f"write `{written}` {'next to it' if best else 'in `extra trl`'}",
        (spec.label("eval.data", f"{len(spec.sets)} set{'s' * (len(spec.sets) > 1)}"),),
        written if isinstance(metric, str) else None,
    )
