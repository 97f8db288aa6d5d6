"""Functions with which proofs measure streamed rows. The rows are the tiny rows with which proofs train, read as a
stream.
"""

from __future__ import annotations

from typing import Any


def _rows(run: Any) -> Any:
    """The tiny rows. They are a stream if the bundle streams its data, and otherwise a dataset."""
    return run.rows.to_iterable_dataset() if run.plan["data"].get("streaming") else run.rows


def trainer(run: Any) -> dict[str, Any]:
    """Build the trainer on the rows as a stream. Raises any exception of the trainer."""
    run.__dict__["rows"] = _rows(run)
    return {"made": run.trainer is not None}


def held_out(run: Any) -> dict[str, Any]:
    """Split off a holdout from the rows. Raises the exception of the rows' class, since a stream may not support
    this.
    """
    return {"rows": len(_rows(run).train_test_split(test_size=0.25)["test"])}


def _loader(run: Any) -> Any:
    """A data loader for the tokenized rows. If the bundle streams its data, the rows are wrapped as a torch stream, as
    in the runtime.
    """
    from torch.utils.data import IterableDataset

    made = run.trainer
    tokenized = list(made.train_dataset)

    class Rows(IterableDataset):  # type: ignore[misc, type-arg, unused-ignore]
        def __iter__(self) -> Any:
            yield from tokenized

    if run.plan["data"].get("streaming"):
        made.train_dataset = Rows()
    return made.get_train_dataloader()


def saves(run: Any) -> dict[str, Any]:
    """Whether a run over a stream makes exactly one save, counting the saves during the run and at its end."""
    from transformers import DefaultFlowCallback, TrainerControl, TrainerState

    args, many = run.args, run.args.max_steps
    epochs = many // run.trainer.set_initial_training_values(args, _loader(run))[1]
    state, found = TrainerState(), 0
    state.max_steps = many
    state.compute_steps(args, many)
    for state.global_step in range(1, many + 1):
        found += DefaultFlowCallback().on_step_end(args, state, TrainerControl()).should_save
    return {"once": found + (epochs if args.save_strategy == "epoch" else 0) == 1}


def first_rows(run: Any) -> dict[str, Any]:
    """Two answers: whether the first batches repeat rows, and whether their rows are in the stored order."""
    stored, seen = [list(row) for row in run.trainer.train_dataset["input_ids"]], []
    for batch in _loader(run):
        seen += [row[mask == 1].tolist() for row, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
        if len(seen) >= 8:
            break
    first = seen[:8]
    return {"repeated": any(first.count(row) > stored.count(row) for row in first), "as_stored": first == stored[:8]}
