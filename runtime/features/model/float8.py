"""Training in fp8 (`precision fp8`): torchao multiplies matrices in eight bits, and everything else is bf16.

accelerate replaces linear layers by torchao's Float8Linear when it wraps the model, after the trainer is made. The
weights keep their dtype, so all saved files are the same as without fp8. accelerate skips the first and the last linear
layer of the model, and layers whose sizes are not multiples of 16 (accelerate 1.15 `utils/ao.py`).
"""

import logging
from collections.abc import Iterator, MutableMapping

from ...core.errors import RunError
from ...core.feature import Bundle, Feature, Model, Trainer

MULTIPLE = 16
"""accelerate replaces a layer only if both dimensions of its weight matrix are multiples of this number."""
COMPILED = "_orig_mod."
"""Names of modules that torch has compiled contain this text."""


class Float8(Feature):
    """Hooks for a run that computes in fp8."""

    def before_imports(self, bundle: Bundle, environ: MutableMapping[str, str]) -> None:
        """Set the environment variables from which accelerate reads its fp8 settings. `accelerate launch` sets them
        from accelerate.yaml."""
        environ["ACCELERATE_MIXED_PRECISION"] = "fp8"
        environ["ACCELERATE_FP8_BACKEND"] = "AO"
        environ["ACCELERATE_FP8_ENABLE_FSDP_FLOAT8_ALL_GATHER"] = str(bundle.run["fp8"]["all_gather"])
        environ["ACCELERATE_FP8_PAD_INNER_DIM"] = "True"
        # torchao warns about extensions that fp8 training does not use
        logging.getLogger("torchao").setLevel(logging.ERROR)

    def made(self, bundle: Bundle, trainer: Trainer) -> Iterator[tuple[str, object, object]]:
        """Compare accelerate's fp8 settings with the bundle, and record which layers will compute in fp8."""
        self.layers = replaceable(trainer.model)
        recipe = trainer.accelerator.ao_recipe_handler
        yield "the library that computes in fp8", "torchao", "none" if recipe is None else "torchao"
        if recipe is not None:
            stated, gathered = bundle.run["fp8"]["all_gather"], recipe.config.enable_fsdp_float8_all_gather
            yield "gathering weights in fp8", stated, gathered
            yield "padding for fp8", True, recipe.config.pad_inner_dim
        if not self.layers:
            raise RunError(
                f"no layer of {bundle.base} can compute in fp8: it needs linear layers whose sizes are multiples of "
                f"{MULTIPLE}; write `precision bf16`"
            )

    def before_first_step(self, bundle: Bundle, trainer: Trainer) -> None:
        """Compare the layers that compute in fp8, and the dtype of their weights, with the bundle. Raises RunError."""
        from torchao.float8.float8_linear import Float8Linear

        made = {name: one for name, one in named_modules(trainer.model) if isinstance(one, Float8Linear)}
        different = sorted(self.layers ^ made.keys())
        if different:
            raise RunError(
                f"the libraries did not build the run as stated: {len(made)} layers compute in fp8, and the bundle "
                f"states {len(self.layers)} ({different[0]} differs)"
            )
        sharded = bundle.run["distributed_type"] == "FSDP"  # under FSDP, accelerate makes all trained weights float32
        stated = {"float32" if sharded else bundle.model["dtype"]}
        kinds = {str(one.weight.dtype).removeprefix("torch.") for one in made.values() if one.weight.requires_grad}
        if kinds - stated:
            raise RunError(
                f"the libraries did not build the run as stated: weights of layers that compute in fp8 are "
                f"{', '.join(sorted(kinds))}, and the bundle states {', '.join(stated)}"
            )


def named_modules(model: Model) -> Iterator[tuple[str, object]]:
    """The modules of a model by name, compiled or not."""
    for name, module in model.named_modules():
        yield name.replace(COMPILED, ""), module


def replaceable(model: Model) -> set[str]:
    """The names of the layers that accelerate replaces: linear layers whose sizes are multiples of 16, but not the
    first and the last linear layer.
    """
    import torch

    linear = [(name, one) for name, one in named_modules(model) if isinstance(one, torch.nn.Linear)]
    return {name for name, one in linear[1:-1] if one.in_features % MULTIPLE == 0 and one.out_features % MULTIPLE == 0}
