"""Methods of trl 0.18 whose loss is a mean over the pairs of a micro-batch."""

from typing import Any

from ...core.feature import Bundle, Feature


class LossDivision(Feature):
    """The loss of an optimizer step is the mean over its micro-batches."""

    def trainer_made(self, bundle: Bundle, trainer: Any, tokenizer: Any) -> None:
        """Has transformers divide the loss by the gradient accumulation.

        The other trainers of trl 0.18 say so themselves. Without it transformers takes their loss for one that is
        already divided: gradients would be a sum, not a mean.
        """
        trainer.model_accepts_loss_kwargs = False
