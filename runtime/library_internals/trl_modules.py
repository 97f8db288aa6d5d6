"""Replace names in trl's trainer modules while a trainer is constructed (trl 0.18 to 1.16)."""

from collections.abc import Callable, Iterator, Mapping
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


def sharded(prepare: Callable[..., Any]) -> Callable[..., Any]:
    """Replaces trl's ``prepare_fsdp`` for a reference model: trl 0.24 shards it by FSDP1 in a run with FSDP2, too, and
    raises an error about the plugin's settings. accelerate shards it as it shards the trained model, but here the
    reference keeps its dtype.
    """

    def prepared(model: Any, accelerator: Any) -> object:
        if (
            getattr(accelerator.state.fsdp_plugin, "fsdp_version", 1) == 1
            or "fsdp_version" in prepare.__code__.co_names
        ):
            return prepare(model, accelerator)
        from accelerate.utils.fsdp_utils import fsdp2_prepare_model

        return fsdp2_prepare_model(_KeepingDtypes(accelerator), model).eval()

    return prepared


class _KeepingDtypes:
    """An accelerator without mixed precision. With it, accelerate converts the weights to float32."""

    mixed_precision = "no"

    def __init__(self, accelerator: object) -> None:
        self.accelerator = accelerator

    def __getattr__(self, name: str) -> object:
        return getattr(self.accelerator, name)


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
