"""Refuse the combinations of keys that LLaMA-Factory itself refuses.

Source: LLaMA-Factory 0.9.5, hparams/parser.py (`_verify_model_args`, `get_train_args`), data_args.py and
finetuning_args.py (`__post_init__`). Combinations that a rule of xpc refuses are omitted.
"""

from __future__ import annotations

from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.text.entries import Entries, Entry, is_stated, number, text

EXCLUSIVE = (
    ("mask_history", "train_on_prompt"),
    ("max_samples", "streaming"),
    ("resize_vocab", "quantization_bit"),
)
"""Pairs of keys that LLaMA-Factory refuses in the same file."""
ADAPTERS = ("use_rslora", "use_dora", "pissa_init", "loraplus_lr_ratio")
"""Keys that LLaMA-Factory accepts only with `finetuning_type: lora`."""
PROJECTED = ("use_galore", "use_apollo")
"""Keys that LLaMA-Factory refuses with `finetuning_type: lora`."""
SFT = ("neat_packing", "train_on_prompt", "mask_history", "predict_with_generate")
"""Keys that LLaMA-Factory accepts only with `stage: sft`."""


def refusals(draft: Draft, named: Entries, stage: str) -> None:
    """Report an error for each combination of keys of the older layout that LLaMA-Factory refuses."""
    if "train_dataset" in named:
        return

    def on(key: str) -> bool:
        return key in named and not named[key].off

    def wrong(key: str, why: str, remedy: str) -> None:
        draft.error(named[key], f"LLaMA-Factory refuses the file, too: {why}", remedy)

    for one, other in EXCLUSIVE:
        if on(one) and on(other):
            wrong(one, f"`{one}` excludes `{other}`", "leave one of them out")
    kind = str(text(named["finetuning_type"])) if "finetuning_type" in named else "lora"
    for key in ADAPTERS if kind != "lora" else PROJECTED:
        if on(key):
            wrong(key, f"`{key}` excludes `finetuning_type: {kind}`", "leave one of them out")
    for key in SFT if stage != "sft" else ():
        if on(key):
            wrong(key, f"`stage: {stage}` has no `{key}`", "leave it out")
    if stage == "rm" and on("load_best_model_at_end"):
        wrong("load_best_model_at_end", "`stage: rm` has no best checkpoint", "leave it out")
    if stage == "sft" and on("do_predict") and not on("predict_with_generate"):
        wrong("do_predict", "it needs `predict_with_generate`", "leave it out")
    if on("pure_bf16") and draft.value("strategy") == "zero3":
        wrong("pure_bf16", "`pure_bf16` excludes ZeRO-3", "write `bf16: true`")
    _rows(draft, named, on("streaming"))


def _rows(draft: Draft, named: Entries, streamed: bool) -> None:
    """Report errors for refused combinations of keys about evaluation data, streaming and mixtures."""

    def wrong(entry: Entry, why: str, remedy: str) -> None:
        draft.error(entry, f"LLaMA-Factory refuses the file, too: {why}", remedy)

    held, other = named.get("val_size"), named.get("eval_dataset")
    share = number(held) or 0 if is_stated(held) else 0
    evaluated = share > 0 or is_stated(other)
    for key in ("eval_strategy", "evaluation_strategy", "do_eval"):
        if key in named and not named[key].off and not evaluated:
            wrong(named[key], "there is no evaluation data", "`val_size: 0.1` holds out rows, and `eval_dataset` "
                  "names datasets")  # fmt: skip
            break
    mixed, shares = named.get("mix_strategy"), named.get("interleave_probs")
    if is_stated(shares) and (not is_stated(mixed) or mixed.value == "concat"):
        wrong(shares, "`mix_strategy: concat` has no probabilities", "leave it out")
    if streamed and held is not None and 0 < share < 1:
        wrong(held, "a streamed dataset cannot hold out a share of its rows", "write a number of rows")
    steps = named.get("max_steps")
    if streamed and (steps is None or (number(steps) or -1) <= 0):
        wrong(named["streaming"], "a run on streamed rows has no end without `max_steps`", "write `max_steps`")
