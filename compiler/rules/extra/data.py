"""Rules about arguments in `extra trl` that concern data, its loading, losses, the hub and logging (XP561 to XP565,
XP606 to XP608, XP750, XP753).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import extra
from xpc.compiler.rules.core.rule import Finding, rule, with_more, write
from xpc.compiler.spec import Spec

WHEN = extra("trl")

READ_BY_TRL = ("prompt", "completion", "messages", "conversations", "input_ids", "labels", "tools")
"""Names of columns that have a special meaning for trl. A column of plain text must not have one of these names."""
WITH_OUTPUT_ROUTER_LOGITS = (
    "granitemoehybrid", "jamba", "kimi_linear", "llama4_text", "nemotron_h", "qwen2_moe", "qwen3_moe", "qwen3_next",
)  # fmt: skip
"""Families whose configuration has `output_router_logits`, even if the model has no experts (transformers 5.23)."""


@rule("XP561", "loader-without-workers")
def loader_without_workers(spec: Spec) -> Iterator[Finding]:
    """`extra trl` must set `dataloader_num_workers` if it sets how many batches are prefetched, whether workers are
    persistent, or how workers start. These arguments only affect separate loader processes.

    Why it is bad: the run cannot start.

    Without this rule: `dataloader_prefetch_factor` raises ValueError when the arguments are built. The arguments for
    persistent workers and for their start raise ValueError in train(), after the model is loaded and the data
    tokenized.

    Source: transformers 5.23 and 4.52 `training_args.py`; torch `dataloader.py`; confirmed by running it.
    """
    if spec.extra_value("trl", "dataloader_num_workers"):
        return
    for name, off in (
        ("dataloader_prefetch_factor", None),
        ("dataloader_persistent_workers", False),
        ("dataloader_multiprocessing_context", None),
    ):
        value = spec.extra_value("trl", name)
        if value is None or value == off:
            continue
        location = spec.extra_location("trl", name, "no other process loads data")
        yield Finding(
            location,
            f"`{name}` needs workers",
            "write `dataloader_num_workers = 4` as well, or leave the argument out",
            replace=with_more(location, "dataloader_num_workers = 4"),
        )


@rule("XP562", "nothing-prefetched")
def nothing_prefetched(spec: Spec) -> Iterator[Finding]:
    """The data loader must prefetch at least one batch, and cannot have a negative number of workers.

    Why it is bad: the run cannot start.

    Without this rule: AssertionError or ValueError from the loader in train(), after the model is loaded and the data
    tokenized.

    Source: torch 2.13 `dataloader.py`; confirmed by running it.
    """
    for name, low in (("dataloader_prefetch_factor", 1), ("dataloader_num_workers", 0)):
        value = spec.extra_value("trl", name)
        if isinstance(value, int) and value < low:
            better = f"{name} = {max(2, low)}"
            location = spec.extra_location("trl", name, f"at least {low}")
            yield Finding(location, f"`{name}` is out of range", write(better))


@rule("XP563", "order-decided-twice")
def order_decided_twice(spec: Spec) -> Iterator[Finding]:
    """`shuffle = false` cannot be combined with a sampler that draws or sorts the rows.

    Why it is bad: `shuffle = false` and the sampler state different orders of the rows.

    Without this rule: the sampler named in `extra` silently takes precedence. If transformers does not know the
    sampler's name, it shuffles the rows.

    Source: transformers 5.23 `trainer.py` (`_get_train_sampler`); confirmed by running it.
    """
    strategy = spec.extra_value("trl", "train_sampling_strategy")
    if strategy is not None and strategy != "sequential" and not spec.flag("data.shuffle"):
        yield Finding(
            spec.extra_location("trl", "train_sampling_strategy", "another order"),
            f"`{strategy}` contradicts `shuffle = false`",
            write("train_sampling_strategy = sequential", ", or leave one of the two out"),
            (spec.label("data.shuffle", "the order of the rows"),),
        )


@rule("XP564", "lengths-not-there", "warning")
def lengths_not_there(spec: Spec) -> Iterator[Finding]:
    """`length_column_name` should not be set: the trainer's rows have no column of lengths, and the trainer counts
    their tokens instead.

    Why it is bad: `length_column_name` has no effect.

    Without this rule: transformers reads `length_column_name` only if the rows have that column. They never do, because
    the runtime keeps only the columns that the row format needs, such as `messages`.

    Source: transformers 5.23 and 4.52 `trainer.py` (`_get_train_sampler`); read, not run.
    """
    if spec.extra_value("trl", "length_column_name") not in (None, "length"):
        yield Finding(
            spec.extra_location("trl", "length_column_name", "no such column"),
            "`length_column_name` names a column that no row has",
            "leave `length_column_name` out: lengths are counted from the tokens",
        )


@rule("XP565", "text-column-in-extra")
def text_column(spec: Spec) -> Iterator[Finding]:
    """`dataset_text_field` must not be a name that has another meaning in trl, such as `prompt`, and on trl-0.18 it
    must be `text`. The runtime passes the texts to trl in a column of this name. The column of your data is stated in
    `columns`, and may have any name.

    Why it is bad: trl recognizes the format of a row by the names of its columns.

    Without this rule: if `dataset_text_field` is a name such as `prompt` or `messages`, trl reads the row as a prompt
    or as a list of messages, and raises KeyError while tokenizing. On trl-0.18 any name but `text` silently drops the
    end token of every row.

    Source: trl 1.16 and 0.18 `sft_trainer.py` (`add_eos`); confirmed by running it.
    """
    name = spec.extra_value("trl", "dataset_text_field")
    if name is None or name == "text":
        return
    location = spec.extra_location("trl", "dataset_text_field")
    help = "leave `dataset_text_field` out; `columns = [story]` after a source names its text column"
    if all(source.shape != "text" for source in spec.data):
        yield Finding(location, "`dataset_text_field` needs rows of text", help, severity="warning")
    elif name in READ_BY_TRL:
        yield Finding(location, f"trl reads a column `{name}` as something other than text", help)
    elif not spec.stack.facts.end_token_of_any_column:
        yield Finding(
            location,
            f"{spec.stack.name} adds the end token only to a column called `text`",
            help,
            (spec.label("target", "the target"),),
        )


@rule("XP606", "router-loss-of-a-dense-model")
def router_loss(spec: Spec) -> Iterator[Finding]:
    """The balancing loss `router_aux_loss_coef` needs a mixture of experts.

    Why it is bad: a dense model has no router to balance.

    Without this rule: ValueError at the end of the trainer's constructor, after the data is tokenized.

    Source: trl 1.16 `sft_trainer.py`; confirmed by running it.
    """
    facts = spec.model.facts
    dense = facts is not None and facts.experts == 0 and facts.model_type not in WITH_OUTPUT_ROUTER_LOGITS
    if facts is not None and dense and spec.extra_value("trl", "router_aux_loss_coef"):
        yield Finding(
            spec.extra_location("trl", "router_aux_loss_coef", "no router"),
            f"{spec.model.name} is a dense model ({facts.model_type})",
            "leave `router_aux_loss_coef` out, or name a mixture of experts",
            (spec.model.label,),
        )


@rule("XP607", "cut-from-the-left", "warning")
def cut_from_the_left(spec: Spec) -> Iterator[Finding]:
    """`truncation_mode` should not be `keep_end`, which cuts the beginning of long rows instead of their end. With rows
    of images, this is an error.

    Why it is bad: the system prompt and the question are lost instead of the end of the answer, and so are images.

    Without this rule: the beginnings of long rows are cut. trl 1.16 warns that trl 2.0 removes `keep_end`
    (FutureWarning). With images, it raises ValueError after the model is loaded.

    Source: trl 1.16 `sft_config.py`; confirmed by running it. For images: trl 1.16 `sft_trainer.py`, `dpo_trainer.py`;
    read, not run.
    """
    if spec.extra_value("trl", "truncation_mode") == "keep_end":
        yield Finding(
            spec.extra_location("trl", "truncation_mode", "deprecated"),
            "rows are cut at their beginning, and questions are lost",
            write("truncation_mode = keep_start", ", or a longer `seq`"),
            (spec.label("batch.seq", "the longest row"),),
            severity="error" if spec.reads_images else None,
        )


@rule("XP608", "smoothing-without-the-loss")
def smoothing(spec: Spec) -> Iterator[Finding]:
    """Label smoothing cannot be combined with `dft` or the balancing loss of experts, because trl computes smoothed
    labels in a separate loss, which includes neither of the two. Label smoothing itself is deprecated in trl 1.16.

    Why it is bad: the run trains without label smoothing, or without the balancing loss.

    Without this rule: with `dft`, the labels are silently not smoothed; for a mixture of experts, the balancing loss is
    silently left out. For a dense model and another loss than `dft`, label smoothing works, but costs a second forward
    pass in every step; then this rule only warns.

    Source: trl 1.16 and 0.24 `sft_trainer.py` (`compute_loss`); confirmed by running it.
    """
    value = spec.extra_value("trl", "label_smoothing_factor")
    if not isinstance(value, int | float) or not value or spec.text("method") != "sft":
        return
    location = spec.extra_location("trl", "label_smoothing_factor")
    losses = spec.get("method.loss")
    if isinstance(losses, tuple) and any(one.name == "dft" for one in losses):
        yield Finding(
            location,
            "`dft` does not smooth labels",
            "leave `label_smoothing_factor` or `loss = dft` out",
            (spec.label("method.loss", "this loss is not smoothed"),),
        )
        return
    # the rule XP496 already reports label smoothing with context parallelism under ZeRO (Ulysses)
    if spec.stack.facts.label_smoothing != "extra_forward" or spec.ulysses:
        return
    if spec.extra_value("trl", "router_aux_loss_coef"):
        yield Finding(
            location,
            "with smoothed labels the router's loss is dropped",
            "leave `label_smoothing_factor` or `router_aux_loss_coef` out",
            (spec.extra_location("trl", "router_aux_loss_coef", "this loss would be dropped"),),
        )
        return
    yield Finding(
        location,
        "every step runs the forward pass twice for smoothed labels",
        "leave `label_smoothing_factor` out",
        severity="warning",
    )


@rule("XP750", "nothing-is-pushed", "warning")
def nothing_pushed(spec: Spec) -> Iterator[Finding]:
    """`hub_always_push` needs `hub`, because it only decides at which moments a run pushes to the hub.

    Why it is bad: without `hub`, the run pushes nothing.

    Without this rule: `hub_always_push` is silently ignored, because it is read only if `push_to_hub` is on.

    Source: transformers 5.23 and 4.52 `trainer.py`; read, not run.
    """
    name = "hub_always_push"
    if spec.extra_value("trl", name) is True and not spec.flag("save.hub"):
        yield Finding(
            spec.extra_location("trl", name, "never read"),
            f"`{name}` is set, but nothing is pushed to the hub",
            f"write `hub`, or leave `{name}` out",
            replace=f"{name} = false",
        )


@rule("XP753", "nan-hidden", "warning")
def nan_hidden(spec: Spec) -> Iterator[Finding]:
    """`logging_nan_inf_filter` should stay false, so that losses that are NaN or infinite are logged as they are.
    Bundles set it to false, while the default of transformers is true.

    Why it is bad: if `logging_nan_inf_filter` is true, the logged loss looks healthy although the weights have become
    NaN.

    Without this rule: in the log, each NaN is replaced by the mean of the losses so far.

    Source: transformers 5.23 and 4.52 `trainer.py` (`_run_epoch`); confirmed by running it.
    """
    if spec.extra_value("trl", "logging_nan_inf_filter") is True:
        yield Finding(
            spec.extra_location("trl", "logging_nan_inf_filter", "logs a mean instead"),
            "NaN losses are hidden",
            write("logging_nan_inf_filter = false"),
        )
