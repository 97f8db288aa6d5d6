"""Divide the loss of some methods of trl 0.18, a mean over one micro-batch, by the gradient accumulation."""

from typing import Any

from ...core.feature import Bundle, Feature


class LossDivision(Feature):
    """Hooks that make the loss of an optimizer step the mean over its micro-batches."""

    def trainer_made(self, bundle: Bundle, trainer: Any, tokenizer: Any) -> None:
        """Make transformers divide the loss by the gradient accumulation.

        The other trainers of trl 0.18 set this themselves. Without this hook, transformers assumes that the loss is
        already divided, and the gradients are a sum instead of a mean.
        """
        trainer.model_accepts_loss_kwargs = False
