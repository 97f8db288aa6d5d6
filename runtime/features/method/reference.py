"""The reference model: a frozen copy, with which preference and online methods compare the trained model."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType, SimpleNamespace
from typing import Any

from ...core.feature import Bundle, Feature, Model, Trainer
from ...library_internals.trl_modules import precompute, replaced, sharded
from ..rows.evaluation_sets import joined_sets


class Reference(Feature):
    """Hooks for a run with a reference model."""

    def trainer_options(self, bundle: Bundle, model: Model, load: Callable[[], Model], options: dict[str, Any]) -> None:
        """For methods whose trainer takes a ``ref_model``: load the reference model and pass it to the trainer."""
        if is_given(bundle):
            options["ref_model"] = load()

    def making_trainer(
        self, bundle: Bundle, model: Model, module: ModuleType, load: Callable[[], Model]
    ) -> AbstractContextManager[object]:
        """If the trainer loads the reference model itself: make it load the model as the bundle states."""
        return loaded_by(bundle, module, load, model)

    def before_training(self, bundle: Bundle, trainer: Trainer) -> None:
        """Precompute the reference with the initial weights. trl before 1.0 does so when rows are first used: after it
        has loaded a checkpoint, and for evaluation rows after the first steps.
        """
        if bundle.arguments.get("precompute_ref_log_probs") and bundle.method in bundle.stack["reference_given"]:
            precompute(trainer)


def is_given(bundle: Bundle) -> bool:
    """Whether the runtime loads the reference model and passes it to the trainer.

    True for trainers that would otherwise copy the policy in memory: under ZeRO-3, such a copy is impossible.
    """
    precomputed = bundle.arguments.get("precompute_ref_log_probs")
    return bundle.method in bundle.stack["reference_given"] and bundle.lora is None and not precomputed


def loaded_by(bundle: Bundle, module: object, load: Callable[[], Any], policy: Any) -> AbstractContextManager[None]:
    """A context manager: inside it, the module ``module`` of trl's trainer loads the reference model with ``load``.

    By itself, trl loads the reference by the model's name: without the pinned revision, and in trl 0.18 (GRPO under
    ZeRO-3 and FSDP) always in float32. trl's own setting for this, ``model_init_kwargs``, is refused or causes a
    warning if the policy is passed as a loaded model. trl 0.24 also loads a configuration by the model's name, to find
    the model class. KTO of trl 0.18 and 0.24 joins columns to the evaluation rows; because there may be several
    evaluation sets, its function that joins them is replaced, too.
    """
    replacements: dict[str, object] = {
        "create_model_from_path": lambda *_, **__: load(),
        "AutoModelForCausalLM": SimpleNamespace(from_pretrained=lambda *_, **__: load()),
        "AutoConfig": SimpleNamespace(from_pretrained=lambda *_, **__: policy.config),
        "transformers": _Classes(load),
    }
    if (bundle.data.get("evaluation") or {"named": False})["named"]:
        replacements["concatenate_datasets"] = joined_sets
    if hasattr(module, "prepare_deepspeed"):
        replacements["prepare_deepspeed"] = _untrained(module.prepare_deepspeed)
    if hasattr(module, "prepare_fsdp"):
        replacements["prepare_fsdp"] = sharded(module.prepare_fsdp)
    return replaced(module, replacements)


class _Classes:
    """Stands in for the package transformers: its model classes load models with ``load``."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load

    def __getattr__(self, name: str) -> object:
        import transformers

        found = getattr(transformers, name)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return SimpleNamespace(from_pretrained=lambda *_, **__: self.load())
        return found


def _untrained(prepare: Callable[..., object]) -> Callable[..., object]:
    """Replaces trl's ``prepare_deepspeed`` for a reference model, which needs no optimizer, schedule or offload.

    trl 1.16 itself omits all three. trl 0.18 gives the reference the complete deepspeed.json. Under bf16, DeepSpeed
    0.16.8 then creates an optimizer without weights (GRPO under ZeRO-1 and 2: "torch.cat(): expected a non-empty list
    of Tensors"), or an optimizer with float32 copies of all weights of the reference.
    """

    def prepared(model: Model, accelerator: Any) -> object:
        plugin = accelerator.state.deepspeed_plugin
        full_config = plugin.deepspeed_config
        plugin.deepspeed_config = {
            name: value for name, value in full_config.items() if name not in ("optimizer", "scheduler")
        }
        zero = full_config["zero_optimization"]
        plugin.deepspeed_config["zero_optimization"] = {
            name: zero[name] for name in zero if name != "offload_optimizer"
        }
        try:
            return prepare(model, accelerator)
        finally:
            plugin.deepspeed_config = full_config

    return prepared
