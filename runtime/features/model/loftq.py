"""Initialize LoRA adapters by LoftQ, from the difference between the published weights and the base in 4 bits.

Each pair of matrices approximates the error of rounding to 4 bits as well as is possible with `rank` directions: s B A
= W - Q(W). The base does not change, so the saved adapter fits the published base in 4 bits. peft's
``replace_lora_weights_loftq`` is not used for two reasons. It needs a GPU, and it computes B A as if s were 1. If alpha
is twice the rank, s is 2. The weights at the first step would then be as far from the published ones as without LoftQ.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from ...core.errors import RunError, first_line
from ...core.feature import Bundle, Model
from .adapters import ADAPTER


def initialize_from_rounding(bundle: Bundle, model: Model, layers: Mapping[str, Any]) -> None:
    """Initialize the layers' adapters from the published weights, which are read one by one.

    Raises RunError if a layer's published weight is not in the model's files, or has another shape.
    """
    import torch
    from bitsandbytes.functional import dequantize_4bit

    plan = bundle.lora
    assert plan is not None
    rank = plan["rank"]
    with ExitStack() as stack:
        read = _reader(bundle, model, stack)
        for name, layer in layers.items():
            base = layer.get_base_layer().weight
            rounded = dequantize_4bit(base.data, base.quant_state).to(torch.float32)
            published = read(name).to(rounded)
            if published.shape != rounded.shape:
                raise RunError(
                    f"LoftQ compares {name}, of shape {[*rounded.shape]}, with a published weight of shape "
                    f"{[*published.shape]}; write `init = eva`, or leave `init` out"
                )
            with torch.no_grad():
                scale = layer.scaling[ADAPTER]
                left, sizes, right = torch.linalg.svd((published - rounded) / scale, full_matrices=False)
                root = sizes[:rank].sqrt()
                up, down = left[:, :rank] * root, root[:, None] * right[:rank]
                layer.lora_A[ADAPTER].weight.copy_(down)
                layer.lora_B[ADAPTER].weight.copy_(up)
                # with DoRA, the new weights need new magnitudes: the old ones would scale the columns at the first step
                if ADAPTER in layer.lora_magnitude_vector:
                    magnitude = torch.linalg.norm(rounded + scale * up @ down, dim=1)
                    layer.lora_magnitude_vector[ADAPTER].weight.copy_(magnitude)


def _reader(bundle: Bundle, model: Model, stack: ExitStack) -> Callable[[str], Any]:
    """A function that reads the published weight of an adapted layer, by the layer's name in the PeftModel."""
    from safetensors import safe_open
    from transformers.utils import cached_file
    from transformers.utils.hub import get_checkpoint_shard_files

    place, options = bundle.model_path, {"revision": bundle.loading()["revision"]}
    try:
        one = cached_file(place, "model.safetensors", _raise_exceptions_for_missing_entries=False, **options)
        files = [one]
        if one is None:
            index = cached_file(place, "model.safetensors.index.json", **options)
            files, _ = get_checkpoint_shard_files(place, index, **options)
        opened = [stack.enter_context(safe_open(file, framework="pt", device="cpu")) for file in files]
    except OSError as error:
        raise RunError(f"LoftQ cannot read model.safetensors of {place}: {first_line(error)}") from error
    weights = {name: one for one in opened for name in one.keys()}  # noqa: SIM118 - not a dict
    body = f"{model.get_base_model().base_model_prefix}."

    def read(layer: str) -> Any:
        name = layer.removeprefix("base_model.model.") + ".weight"
        found = name if name in weights else name.removeprefix(body)
        if found not in weights:
            raise RunError(f"LoftQ finds no {name} in the files of {place}; write `init = eva`, or leave `init` out")
        return weights[found].get_tensor(found)

    return read
