"""Check whether packed documents attend to each other, in the trainer's own training and evaluation batches."""

from __future__ import annotations

from itertools import accumulate, islice
from typing import Any

LEAK = 1e-5
"""A logit may change by this much; such a change counts as a rounding error."""


def problems(run: Any, trainer: Any) -> list[str]:
    """Replace a token of the first document of a packed row. If a logit after the end of this document changes, the
    documents attend to each other.
    """
    values = run.plan["arguments"]
    packed = bool(values.get("packing"))
    evaluated = packed if values.get("eval_packing") is None else bool(values["eval_packing"])
    out = []
    for name, rows, is_packed in (
        ("training", trainer.train_dataset, packed), ("evaluation", _first(trainer.eval_dataset), evaluated),
    ):  # fmt: skip
        if rows is None or not (is_packed or values.get("padding_free")):
            continue
        if is_packed and values.get("packing_strategy", "wrapped") == "wrapped" and not run.job.get("isolate"):
            # With `wrapped`, the documents of a row attend to each other. XP312 warns about this, so it is not a silent
            # effect.
            continue
        streamed = run.plan["data"].get("streaming")
        leaks = _leaks(run, trainer, list(islice(rows, 16)) if streamed else rows, is_packed)
        if leaks:
            out.append(f"packed {name} rows attend to each other: {leaks}")
    return out


def _first(rows: Any) -> Any:
    """The rows, or the first of several evaluation sets. The other sets are not tested, because the trainer treats all
    sets in the same way.
    """
    return next(iter(rows.values())) if isinstance(rows, dict) else rows


def _leaks(run: Any, trainer: Any, given: Any, packed: bool) -> str:
    import torch

    batch, ends = _batch(run, trainer, given, packed)
    if batch is None:
        return ""
    model = trainer.accelerator.unwrap_model(trainer.model).eval()
    if run.sharded or any(hasattr(one, "ds_id") for one in model.parameters()):
        return ""
    # LLM.int8() looks at all tokens of a batch to choose the columns that it does not quantize. So documents change
    # each other's logits even if attention separates them.
    if (run.plan.get("lora") or {}).get("bits") == 8:
        return ""
    torch.manual_seed(0)
    for weights in model.parameters():
        if weights.dim() > 1 and weights.is_floating_point() and not hasattr(weights, "quant_state"):
            torch.nn.init.normal_(weights, std=0.1)
    ids = batch["input_ids"]
    exchanged = ids.clone()
    exchanged[0, : ends[0] - 1] = ids[0, : ends[0] - 1] % 900 + 50
    with torch.no_grad(), trainer.compute_loss_context_manager():
        logits = [
            model(**{**batch, "input_ids": one, "use_cache": False}).logits[0].float() for one in (ids, exchanged)
        ]
    change = (logits[0] - logits[1]).abs()
    behind = float(change[ends[0] : ends[-1]].max())
    return f"a logit of a later document changes by {behind:.3g}" if behind > LEAK else ""


def _batch(run: Any, trainer: Any, rows: Any, packed: bool) -> tuple[Any, list[int]]:
    """Return a pair: a batch with one row of at least two documents, and the ends of these documents. If no row has two
    documents, the batch is None.
    """
    chosen = None
    for number in range(min(len(rows), 16) if packed else 0):
        row = rows[number]
        lengths = row.get("seq_lengths") or _ended(run, row["input_ids"])
        if len(lengths) > 1:
            chosen = [row]
            break
    if chosen is None:
        if packed or len(rows) < 2:
            return None, []
        chosen = [rows[0], rows[1]]
        lengths = [len(one.get("input_ids", ())) for one in chosen]
    batch = trainer.data_collator(chosen)
    if "input_ids" not in batch:
        return _pair_in_one_row(trainer, batch)
    names = ("input_ids", "attention_mask", "position_ids")
    return {name: value for name, value in batch.items() if name in names}, list(accumulate(lengths))


def _pair_in_one_row(trainer: Any, batch: dict[str, Any]) -> tuple[Any, list[int]]:
    """Return the model's input and the ends of its documents. The dpo trainer of the older stacks puts the texts of two
    pairs into one row, and this row is the input.
    """
    import torch

    seen: dict[str, Any] = {}
    model = trainer.accelerator.unwrap_model(trainer.model)

    def listen(_: Any, placed: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.update(zip(("input_ids",), placed, strict=False), **named)

    listening = model.register_forward_pre_hook(listen, with_kwargs=True)
    with torch.no_grad(), trainer.compute_loss_context_manager():
        trainer.concatenated_forward(model, trainer._prepare_inputs(batch))
    listening.remove()
    begun = torch.nonzero(seen["position_ids"][0] == 0).flatten().tolist()
    names = ("input_ids", "attention_mask", "position_ids")
    return {name: seen[name] for name in names if name in seen}, [*begun[1:], seen["input_ids"].shape[1]]


def _ended(run: Any, ids: list[int]) -> list[int]:
    """The lengths of the documents in a packed row. A document ends after an end token, or where the row ends."""
    ends = [i + 1 for i, one in enumerate(ids) if one == run.tokenizer.eos_token_id]
    ends += [len(ids)] if ends and ends[-1] < len(ids) else []
    return [last - first for first, last in zip([0, *ends], ends, strict=False)]
