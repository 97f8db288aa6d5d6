"""For methods of trl 0.18 whose loss is the mean of one micro-batch: divide the loss by the gradient accumulation."""

from ...core.feature import Bundle, Feature, Tokenizer, Trainer


class LossDivision(Feature):
    """Hooks that make the loss of an optimizer step the mean over its micro-batches."""

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Make transformers divide the loss by the gradient accumulation.

        For its other methods, trl 0.18 does this in the trainer's constructor. Without this hook, transformers assumes
        that the loss is already divided, and the gradients are a sum over micro-batches instead of a mean.
        """
        trainer.model_accepts_loss_kwargs = False
