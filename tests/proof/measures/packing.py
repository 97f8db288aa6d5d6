"""Functions with which proofs measure whether the documents of a packed row attend to each other."""

from __future__ import annotations

from typing import Any


def leak(run: Any) -> dict[str, Any]:
    """Compute a document's logits twice, packed after another document and alone; return the largest difference.

    The trainer's own collator makes the batch from a packed row: token ids and position ids, without a mask.
    """
    import torch

    model = run.model.eval().float()
    generator = torch.Generator().manual_seed(0)
    documents = [torch.randint(3, 1000, (length,), generator=generator) for length in (9, 7, 12)]
    packed = {
        "input_ids": torch.cat(documents)[None],
        "position_ids": torch.cat([torch.arange(len(one)) for one in documents])[None],
    }
    with torch.no_grad():
        together = model(**packed, use_cache=False).logits[0]
        alone = torch.cat([model(input_ids=one[None], use_cache=False).logits[0] for one in documents])
    first = len(documents[0])
    return {
        "first": float((together - alone)[:first].abs().max()),
        "later": float((together - alone)[first:].abs().max()),
        "family": model.config.model_type,
    }


def cached(run: Any) -> dict[str, Any]:
    """Like `leak`, but with `use_cache` as in the trainer's arguments: with a cache, transformers does not mask the
    other documents.
    """
    use_cache = bool(run.plan["arguments"].get("use_cache"))
    original = run.model.forward
    run.model.forward = lambda *given, **named: original(*given, **{**named, "use_cache": use_cache})
    return leak(run)


def evaluated(run: Any) -> dict[str, Any]:
    """Whether documents of the trainer's first evaluation batch attend to each other (`attends`)."""
    return attends(run, "get_eval_dataloader")


def attends(run: Any, batches: str = "get_train_dataloader") -> dict[str, Any]:
    """Whether documents of the trainer's first batch attend to each other.

    The documents are texts that end with the end token. The measurement replaces the tokens of the first document; if
    the logits of a later document change, this document attends to the first one. The weights are larger than usual
    initial weights: with usual weights, a recurrent state would fade within one token.
    """
    import torch

    model = run.trainer.model.eval()
    torch.manual_seed(0)
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.1)
    batch = next(iter(getattr(run.trainer, batches)()))
    batch = {name: value for name, value in batch.items() if name != "labels"}
    ids = batch["input_ids"]
    real = (
        batch["attention_mask"][0].bool() if "attention_mask" in batch else torch.ones(ids.shape[1], dtype=torch.bool)
    )
    ends = ((ids[0] == run.tokenizer.eos_token_id) & real).nonzero().flatten()
    first = int(ends[0]) + 1
    exchanged = ids.clone()
    exchanged[0, : first - 1] = ids[0, : first - 1] % 900 + 50
    with torch.no_grad():
        logits = [model(**{**batch, "input_ids": one, "use_cache": False}).logits[0] for one in (ids, exchanged)]
    change = (logits[0] - logits[1]).abs()
    inside, behind = change[:first], change[first:][real[first:]]
    largest = float(behind.max()) if len(behind) else 0.0
    return {"documents": len(ends), "inside": float(inside.max()), "behind": largest, "leaks": largest > 1e-4}


def flash(run: Any) -> dict[str, Any]:
    """The result of `leak`. A flash attention kernel is replaced by code that computes the same on the CPU."""
    import flash as stand_in
    import tiny_models

    stand_in.install()

    class Written:
        """A run whose model uses the attention implementation that the bundle states."""

        model = tiny_models.load(run.family, {**run.plan["model"], "dtype": "float32"})

    return leak(Written)
