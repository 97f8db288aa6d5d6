"""Load checkpoints of models whose weights transformers saves under other names than the model has.

transformers 5 stacks the experts of a mixture in one parameter and saves them one by one under their published names;
it also renames parts of other models, such as Qwen2.5-VL. Its Trainer (5.23, trainer.py) reads a checkpoint with
``load_state_dict(..., strict=False)``, which skips all of these weights. So in a resumed run they would have the base
model's values. If a run loads its best checkpoint at the end, they would have the values of the last step.
"""

from typing import Any


class RenamedWeightsTrainer:
    """Trainer methods for a run whose checkpoints name some weights differently from the model."""

    model: Any
    state: Any

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: object = None) -> None:
        load(self.model if model is None else model, resume_from_checkpoint)

    def _load_best_model(self) -> None:
        load(self.model, self.state.best_model_checkpoint)


def load(model: Any, folder: str) -> None:
    """Load the weights in ``folder`` into ``model``, with the names that transformers gives them when it loads a model.
    Raises RuntimeError if a weight is not in the folder.

    The weights are read on the CPU in the model's dtype, or in float32 if the model has several dtypes.
    """
    import torch

    kinds = {weight.dtype for weight in model.parameters() if weight.is_floating_point()}
    dtype = kinds.pop() if len(kinds) == 1 else torch.float32
    saved, info = type(model).from_pretrained(folder, dtype=dtype, output_loading_info=True)
    if info["missing_keys"]:
        raise RuntimeError(f"{folder} lacks weights: {', '.join(sorted(info['missing_keys'])[:3])}")
    model.load_state_dict(saved.state_dict())
