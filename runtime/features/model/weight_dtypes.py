"""Keep weights in the dtypes that the bundle states, where libraries would silently narrow them.

Silent casts (read in trl 1.16 and 0.18, transformers 5.23 and 4.52.3, peft 0.21 and 0.17.1):

- trl 1.16 rounds every trained weight over a quantized base to bfloat16, also in fp16 and fp32 runs (sft_trainer.py,
  and the trainers of dpo, kto, grpo, rloo and reward);
- a base that was saved quantized computes in the dtype of its config.json, mostly bfloat16;
- mxfp4 weights are unpacked to bfloat16, and custom model code may use any dtype.

An 8-bit base always multiplies in float16 (bitsandbytes 0.50 `MatMul8bitLt`), but does not store float16 values. GPUs
before Ampere have no bfloat16, and under fp16 the gradient scaler does not support bfloat16 gradients.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any

from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Model, Tokenizer, Trainer
from ...library_internals.trl_modules import replaced

BF16 = "bfloat16"


class WeightDtypes(Feature):
    """Hooks that keep weights in the dtypes that the bundle states."""

    def model_loaded(self, bundle: Bundle, model: Model, tokenizer: Tokenizer) -> None:
        """In a run without bfloat16, convert weights that were loaded as bfloat16 to a wider dtype; no value changes.

        Packed weights stay packed, because they are unpacked and multiplied in the run's precision.
        """
        import torch

        if states_bf16(bundle):
            return
        wide = getattr(torch, bundle.model["dtype"])
        computed = torch.float16 if bundle.arguments.get("fp16") else torch.float32
        for module in model.modules():
            if getattr(module, "compute_dtype", None) == torch.bfloat16:
                module.compute_dtype = computed
            state = getattr(getattr(module, "weight", None), "quant_state", None)
            if state is not None and state.dtype == torch.bfloat16:
                state.dtype = computed
        packed = {id(weight) for weight in model.parameters() if hasattr(weight, "quant_state")}
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.dtype == torch.bfloat16 and id(tensor) not in packed and not hasattr(tensor, "ds_id"):
                tensor.data = tensor.data.to(wide)

    def making_trainer(
        self, bundle: Bundle, model: Model, module: ModuleType, load: Callable[[], Model]
    ) -> AbstractContextManager[object]:
        """Record the trained weights that trl creates with peft; they are restored after trl has rounded them to
        bfloat16."""
        self.kept: dict[str, Any] = {}
        return unrounded(bundle, module, self.kept)

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Restore rounded weights. Raises RunError for a weight that is still bfloat16."""
        restore(trainer.model, self.kept)
        models = (trainer.model, getattr(trainer, "ref_model", None))
        check(bundle, *(one for one in models if one is not None))


def states_bf16(bundle: Bundle) -> bool:
    """Whether the bundle uses bfloat16 anywhere."""
    return bool(bundle.arguments.get("bf16")) or bundle.model["dtype"] == BF16


@contextmanager
def unrounded(bundle: Bundle, module: object, kept: dict[str, object]) -> Iterator[None]:
    """A context manager that collects, by name in ``kept``, the trained weights that trl's ``module`` makes with peft.

    Only float32 adapters are collected. No copies are needed, because rounding makes new tensors.
    """
    plan = bundle.lora
    if plan is None or plan["adapter_dtype"] != "float32" or not hasattr(module, "get_peft_model"):
        yield
        return
    make: Any = module.get_peft_model
    prepare: Any = getattr(module, "prepare_deepspeed", None)

    def remembered(*args: Any, **kwargs: object) -> object:
        model = make(*args, **kwargs)
        kept.update({name: weight.data for name, weight in model.named_parameters() if weight.requires_grad})
        return model

    def prepared(model: Model, accelerator: object) -> object:
        restore(model, kept)  # before trl computes the reference's log-probabilities, and ZeRO-3 shards the model
        return prepare(model, accelerator)

    with replaced(module, {"get_peft_model": remembered, "prepare_deepspeed": prepared}):
        yield


def restore(model: Model, kept: dict[str, Any]) -> None:
    """Before the optimizer is created, give the trained weights back the values that they had before trl rounded them
    to bfloat16.
    """
    for name, weight in model.named_parameters():
        before = kept.get(name)
        if before is not None and weight.dtype != before.dtype:
            weight.data = before.to(weight.device)


def check(bundle: Bundle, *models: Any) -> None:
    """Raise RunError if a weight is bfloat16 although the bundle does not use bfloat16."""
    import torch

    if states_bf16(bundle):
        return
    for model in models:
        for name, weight in model.named_parameters():
            if weight.dtype == torch.bfloat16 and not hasattr(weight, "quant_state"):
                raise RunError(
                    f"{name} is bfloat16, and this bundle trains in {bundle.model['dtype']} without bf16; "
                    "the code of the model or of a library has converted it"
                )
