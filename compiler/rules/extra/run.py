"""Rules about arguments in `extra trl` for evaluation, and for the columns that TRL reads (XP274 to XP280, XP690,
XP694, XP695).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from xpc.compiler.language.kinds import NEVER
from xpc.compiler.language.rewards import MATH
from xpc.compiler.rules.core.conditions import extra
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = extra("trl")
IN_EVERY_BATCH = ("labels", "input_ids")
"""Columns that every batch of sft has."""


@rule("XP274", "traced-evaluation")
def traced_evaluation(spec: Spec) -> Iterator[Finding]:
    """sft cannot evaluate a model that `jit_mode_eval` traces: a traced model returns a plain dict, and sft's loss
    reads `logits` from the output. transformers 5 no longer has the argument. transformers 4.57 cannot trace the
    attention mask, so it warns and evaluates the model without tracing.

    Why it is bad: the run fails at its first evaluation.

    Without this rule: AttributeError at the first evaluation, so the training before it is lost. With flash attention
    over flattened rows, which have no mask, the error is RuntimeError "forward() expected at most 4 argument(s)".

    Source: transformers 4.52.3 and 4.57.6 `trainer.py` `torch_jit_model_eval`, trl 0.18 `sft_trainer.py`
    `compute_loss`; confirmed by running it.
    """
    flat = spec.flag("batch.packing") or spec.flag("batch.padding_free")
    traced = spec.stack.facts.traced_evaluation or (flat and spec.text("model.attn").startswith("flash"))
    fails = spec.extra_value("trl", "jit_mode_eval") is True and traced
    if fails and spec.get("method") == "sft" and spec.amount("eval.every") != NEVER:
        yield Finding(
            spec.extra_location("trl", "jit_mode_eval", "a traced model returns a plain dict"),
            "sft cannot evaluate a traced model",
            write("jit_mode_eval = false"),
            (spec.label("eval.every", "the evaluation"),),
        )


@rule("XP278", "older-evaluation-of-completions")
def older_evaluation(spec: Spec) -> Iterator[Finding]:
    """grpo and rloo cannot evaluate with `use_legacy_prediction_loop`, an older loop of transformers. This loop expects
    one result for each row, but grpo and rloo evaluate a row once for each of its completions. transformers 5 has
    dropped the loop.

    Why it is bad: the run fails at its first evaluation.

    Without this rule: ValueError "could not broadcast input array" at the first evaluation; the training before it is
    lost.

    Source: transformers 4.52.3 and 4.57.6 `trainer.py` `prediction_loop`, `trainer_pt_utils.py`
    `DistributedTensorGatherer`; confirmed by running it on both versions.
    """
    name: Final = "use_legacy_prediction_loop"
    if spec.method.generates and spec.extra_value("trl", name) is True and spec.amount("eval.every") != NEVER:
        yield Finding(
            spec.extra_location("trl", name, "counts a row once"),
            f"{spec.text('method')} cannot evaluate with `{name}`",
            write(f"{name} = false"),
            (spec.label("eval.every", "the evaluation"),),
        )


@rule("XP280", "metrics-of-one-batch")
def metrics_of_one_batch(spec: Spec) -> Iterator[Finding]:
    """On trl 0.18, reward models cannot be evaluated batch by batch, as `batch_eval_metrics` asks. The trainer computes
    the accuracy with a function that needs the scores of all rows at once.

    Why it is bad: the run fails when the trainer is built.

    Without this rule: ValueError "your `compute_metrics` function must take a `compute_result` boolean argument",
    also in a run without evaluation.

    Source: trl 0.18 `reward_trainer.py` (`compute_accuracy`), transformers 4.52.3 `trainer.py`; confirmed by running
    it.
    """
    name: Final = "batch_eval_metrics"
    if spec.method.scores and spec.stack.facts.reward_computes_metrics and spec.extra_value("trl", name) is True:
        yield Finding(
            spec.extra_location("trl", name, "one batch at a time"),
            f"the accuracy of a reward model cannot be computed with `{name}` on {spec.stack.name}",
            write(f"{name} = false"),
        )


@rule("XP279", "losses-gathered-as-objects")
def gathered_objects(spec: Spec) -> Iterator[Finding]:
    """`eval_use_gather_object` cannot be used with several processes. With this argument, each process sends its loss
    as a Python object, a single number without dimensions. transformers then tries to concatenate these losses as
    arrays, which need at least one dimension.

    Why it is bad: the evaluation fails or reports a wrong loss.

    Without this rule: if all evaluation rows fit into one batch of all processes, the first evaluation raises
    ValueError "zero-dimensional arrays cannot be concatenated", and the training before it is lost. With more batches,
    the reported loss leaves out some rows if the last batch is not full.

    Source: accelerate 1.15 `utils/operations.py` `gather_object`, transformers 5.23, 4.57.6 and 4.52.3 `trainer.py`
    `evaluation_loop`, `trainer_pt_utils.py` `nested_concat`; confirmed by running it on all versions.
    """
    name: Final = "eval_use_gather_object"
    several = spec.hardware.world > 1 and spec.amount("eval.every") != NEVER
    if several and spec.extra_value("trl", name) is True:
        yield Finding(
            spec.extra_location("trl", name, "losses become single numbers"),
            "losses that are gathered as Python objects are not averaged over processes",
            write(f"{name} = false"),
            (spec.label("eval.every", "the evaluation"), spec.label("hardware", "the hardware")),
        )


@rule("XP276", "labels-of-no-batch")
def labels_of_no_batch(spec: Spec) -> Iterator[Finding]:
    """On trl 0.18 and 0.24, `label_names` of sft must name columns of a batch, such as `labels`. transformers computes
    the loss of an evaluation only if the list has at least one name and the batch has all named columns. sft of trl
    1.16 does not read `label_names`.

    Why it is bad: the run evaluates, and reports no loss.

    Without this rule: nothing is reported: the evaluations have a runtime, but no `eval_loss`. With
    `metric_for_best_model`, transformers raises KeyError after the first evaluation.

    Source: transformers 4.57.6 and 4.52.3 `trainer.py` `prediction_step` (`has_labels`), trl 1.16 `sft_trainer.py`
    `prediction_step`; confirmed by running it on all three.
    """
    name: Final = "label_names"
    value = spec.extra_value("trl", name) if spec.stack.facts.evaluates_by_labels else None
    if spec.get("method") != "sft" or not isinstance(value, list | tuple) or spec.amount("eval.every") == NEVER:
        return
    missing = [str(one) for one in value if one not in IN_EVERY_BATCH]
    if missing or not value:
        yield Finding(
            spec.extra_location("trl", name, "every name must be in the batch"),
            f"no batch of sft has `{missing[0][:60]}`" if missing else "an empty `label_names` means no label",
            write(f"{name} = [labels]"),
            (spec.label("eval.every", "the evaluation"),),
        )


@rule("XP275", "cache-moved-to-the-cpu")
def offloaded_cache(spec: Spec) -> Iterator[Finding]:
    """An offloaded cache of keys and values needs a GPU, because the cache is moved from the GPU to the host and back.

    Why it is bad: the run cannot generate on a CPU.

    Without this rule: AssertionError or RuntimeError at the first completion.

    Source: transformers 5.23 and 4.52.3 `cache_utils.py`; confirmed by running it.
    """
    name = "cache_implementation"
    value = spec.extra_value("trl", name)
    if spec.on_cpu and isinstance(value, str) and value.startswith("offloaded"):
        yield Finding(
            spec.extra_location("trl", name, "moves the cache from a GPU to the host"),
            f"the cache `{value}` needs a GPU",
            write(f'{name} = "dynamic"'),
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP277", "padding-beyond-the-vocabulary")
def padding_token(spec: Spec) -> Iterator[Finding]:
    """`padding_value` of dpo on trl 0.18 must be the id of a token of the model, because trl fills up the shorter rows
    of a batch with it. kto and orpo use `padding_value` for encoder-decoder models only, so this rule does not check it
    there.

    Why it is bad: the model looks up the embedding of the padding value, as for any other token.

    Without this rule: IndexError at the first batch whose rows differ in length.

    Source: trl 0.18 `dpo_trainer.py` `concatenated_inputs`; confirmed by running it.
    """
    value, facts = spec.extra_value("trl", "padding_value"), spec.model.facts
    if spec.get("method") == "dpo" and isinstance(value, int) and facts is not None and value >= facts.vocab:
        yield Finding(
            spec.extra_location("trl", "padding_value", f"{facts.alias} has the tokens 0 to {facts.vocab - 1}"),
            f"{value} is not a token of {facts.alias}",
            "leave `padding_value` out: the tokenizer's own is used",
            (spec.model.label,),
        )


@rule("XP690", "reward-without-its-columns")
def columns_of_rewards(spec: Spec) -> Iterator[Finding]:
    """`remove_unused_columns = true` cannot be combined with rewards that read columns of a row: in grpo and rloo, it
    drops every column except the prompt and images. For a reward function in a file, which perhaps reads no columns,
    this rule only warns.

    Why it is bad: a reward function cannot read the dropped columns, such as the solution of a row.

    Without this rule: TypeError, a missing argument, once the first completions are generated.

    Source: trl 1.16 `grpo_trainer.py`, `rloo_trainer.py` and trl 0.18 `grpo_trainer.py`
    `_set_signature_columns_if_needed`; confirmed by running it.
    """
    name = "remove_unused_columns"
    if not spec.online or spec.extra_value("trl", name) is not True:
        return
    rewards = spec.weighted("method.rewards")
    reads = next((one.name for one in rewards if one.name in MATH), None)
    own = next((one.function for one in rewards if one.file is not None and one.function), None)
    if reads or own:
        yield Finding(
            spec.extra_location("trl", name, "only the prompt is left"),
            f"the reward `{reads}` reads the solution of a row"
            if reads
            else f"the reward `{own}` receives no column except the prompt",
            write(f"{name} = false"),
            (spec.label("method.rewards", "the rewards"),),
            severity="error" if reads else "warning",
        )


@rule("XP695", "columns-kept-anyway")
def columns_kept(spec: Spec) -> Iterator[Finding]:
    """`remove_unused_columns = true` has no effect in some trainers: they need columns that are not arguments of the
    model, so they set it to false again.

    Why it is bad: the run keeps all columns, although the spec states that it drops some.

    Without this rule: the trainers of kto and orpo log that they set `remove_unused_columns` to false; the trainer of
    distillation sets it without a message.

    Source: the code of these trainers, such as trl 1.16 `experimental/orpo/orpo_trainer.py` and trl 0.24
    `gkd_trainer.py`; confirmed by running it for kto and orpo.
    """
    name, method = "remove_unused_columns", spec.text("method")
    if method in spec.stack.facts.keeps_columns and spec.extra_value("trl", name) is True:
        yield Finding(
            spec.extra_location("trl", name, "turned off by the trainer"),
            f"{method} always keeps all columns",
            write(f"{name} = false"),
            (spec.label("method", "the method"),),
        )


@rule("XP694", "words-counted-from-the-prompt")
def long_answers(spec: Spec) -> Iterator[Finding]:
    """`ld_alpha` cannot be used on trl 0.18. It lowers the weight of an answer's late tokens. trl 0.18 decides which
    tokens are late by counting from the start of the row, so the prompt is counted, too; trl 1.16 counts from the start
    of the answer.

    Why it is bad: nothing is learned from a row whose prompt has at least as many tokens as the shorter answer, and too
    little from other rows.

    Without this rule: nothing is reported: the gradients of rows with a long prompt are 0 for any `ld_alpha`.

    Source: trl 0.18 `dpo_trainer.py` `concatenated_forward` (`position_ids`, which begin at the prompt); confirmed by
    running it.
    """
    if spec.extra_value("trl", "ld_alpha") is not None and spec.stack.facts.ld_alpha_counts == "row":
        yield Finding(
            spec.extra_location("trl", "ld_alpha", "counts the prompt's tokens"),
            f"`ld_alpha` on {spec.stack.name} counts the prompt as a part of the answer",
            f"leave `ld_alpha` out, or write `target {able(lambda one: one.facts.ld_alpha_counts == 'answer')}`",
            (spec.label("target", "the target"),),
        )
