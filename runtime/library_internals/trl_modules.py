"""Replace names in trl's trainer modules while a trainer is constructed (trl 0.18 to 1.16)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(module: object, replacements: Mapping[str, object]) -> Iterator[None]:
    """A context manager that replaces objects of a module: ``replacements`` maps names to new objects. A name is
    skipped if the module lacks it.
    """
    originals = {name: getattr(module, name) for name in replacements if hasattr(module, name)}
    for name in originals:
        setattr(module, name, replacements[name])
    try:
        yield
    finally:
        for name, value in originals.items():
            setattr(module, name, value)


def precompute(trainer: Any) -> None:
    """Precompute the reference of all rows (trl 0.18 and 0.24). By itself, trl computes only one evaluation set."""
    trainer.get_train_dataloader()
    rows = trainer.eval_dataset
    sets = rows if isinstance(rows, dict) else {} if rows is None else {"eval": rows}
    for name in sets:
        trainer.eval_dataset, trainer._precomputed_eval_ref_log_probs = sets[name], False
        trainer.get_eval_dataloader()
        sets[name] = trainer.eval_dataset
    if rows is sets:
        trainer.eval_dataset = sets
