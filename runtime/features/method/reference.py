"""The frozen copy of the model beside the one that is trained, which preference and online methods compare with."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from ...core.feature import Bundle, Feature
from ...library_internals.trl_modules import replaced
from ..rows.evaluation_sets import joined_sets


class Reference(Feature):
    """The frozen copy of the model."""

    def trainer_options(self, bundle: Bundle, model: Any, load: Callable[[], Any], options: dict[str, Any]) -> None:
        """The copy, where the trainer is given one."""
        if is_given(bundle):
            options["ref_model"] = load()

    def making_trainer(
        self, bundle: Bundle, model: Any, module: Any, load: Callable[[], Any]
    ) -> AbstractContextManager[Any]:
        """Has trl load its own copy as the bundle says."""
        return loaded_by(bundle, module, load, model)


def is_given(bundle: Bundle) -> bool:
    """Whether the trainer is given a copy: some trainers copy the policy, which ZeRO-3 refuses."""
    precomputed = bundle.arguments.get("precompute_ref_log_probs")
    return bundle.method in bundle.stack["reference_given"] and bundle.lora is None and not precomputed


def loaded_by(bundle: Bundle, module: Any, load: Callable[[], Any], policy: Any) -> AbstractContextManager[None]:
    """While it lasts, trl's module of the trainer loads a reference model by ``load``.

    trl loads it by the model's name alone: without the revision that the bundle pins, and in trl 0.18 (GRPO under
    ZeRO-3 and FSDP) in float32 whatever the policy is; ``model_init_kwargs`` is refused or warned of beside a loaded
    model. trl 0.24 looks the class up in transformers by a configuration that it loads in the same way. KTO of both
    joins columns to the rows that it evaluates on, which may be several sets.
    """
    stand_ins: dict[str, Any] = {
        "create_model_from_path": lambda *_, **__: load(),
        "AutoModelForCausalLM": SimpleNamespace(from_pretrained=lambda *_, **__: load()),
        "AutoConfig": SimpleNamespace(from_pretrained=lambda *_, **__: policy.config),
        "transformers": _Classes(load),
    }
    if (bundle.data.get("evaluation") or {"named": False})["named"]:
        stand_ins["concatenate_datasets"] = joined_sets
    if hasattr(module, "prepare_deepspeed"):
        stand_ins["prepare_deepspeed"] = _untrained(module.prepare_deepspeed)
    return replaced(module, stand_ins)


class _Classes:
    """The package transformers, whose classes of models load by ``load``."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load

    def __getattr__(self, name: str) -> Any:
        import transformers

        found = getattr(transformers, name)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return SimpleNamespace(from_pretrained=lambda *_, **__: self.load())
        return found


def _untrained(prepare: Callable[..., Any]) -> Callable[..., Any]:
    """trl's ``prepare_deepspeed`` of a reference model, without what trains: no optimizer, no schedule, no offload.

    trl 1.16 leaves them out by itself. trl 0.18 hands the whole file on: under bf16 DeepSpeed 0.16.8 then makes an
    optimizer over no weights (GRPO under ZeRO-1 and 2: "torch.cat(): expected a non-empty list of Tensors"), or one
    that holds float32 copies of every weight of the reference.
    """

    def prepared(model: Any, accelerator: Any) -> Any:
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
