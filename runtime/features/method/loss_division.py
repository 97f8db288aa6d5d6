"""Divide the loss of some methods of trl 0.18, a mean over the pairs of a micro-batch, by the accumulation."""

from typing import Any

from ...core.feature import Bundle, Feature


class LossDivision(Feature):
    """The loss of an optimizer step is the mean over its micro-batches."""

    def trainer_made(self, bundle: Bundle, trainer: Any, tokenizer: Any) -> None:
        """Have transformers divide the loss by the gradient accumulation.

        The other trainers of trl 0.18 set this themselves. Without it transformers assumes that the loss is already
        divided, and gradients would be a sum instead of a mean.
        """
        trainer.model_accepts_loss_kwargs = False
