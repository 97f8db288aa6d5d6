"""Keep the order and number of an epoch's prompts if a run resumes (trl's RepeatSampler, trl 0.18 to 1.16)."""

from collections.abc import Iterator
from typing import Any


class PromptSampler:
    """trl's sampler. When a run resumes, it first skips the orders of the epochs that were already trained.

    trl's ``RepeatSampler`` shuffles each epoch with the next numbers of a generator that is seeded once. A resumed run
    makes a new sampler; it would shuffle a later epoch as if it were the first.
    """

    def __init__(self, sampler: Any, trainer: Any) -> None:
        self.sampler, self.trainer, self.started = sampler, trainer, False

    def __len__(self) -> int:
        """The number of indices of an epoch, without the last prompts if they do not fill a round of generation.

        trl drops such prompts, but trl 0.18 counts them: its epochs would have fewer steps than transformers expects,
        and a run would resume at another step.
        """
        prompts = self.sampler
        size = prompts.batch_size * prompts.mini_repeat_count * prompts.repeat_count
        return int(len(prompts) // size * size)

    def __iter__(self) -> Iterator[int]:
        """The indices of an epoch. The first call reads from the checkpoint how many epochs were already trained."""
        if not self.started:
            self.started = True
            for _ in range(int(self.trainer.state.epoch or 0)):
                # taking the first index shuffles one epoch, which advances the random generator
                next(iter(self.sampler), None)
        yield from self.sampler


class RepeatedPromptsTrainer:
    """Trainer methods for a run whose sampler repeats prompts."""

    def _get_train_sampler(self, *args: Any, **kwargs: object) -> PromptSampler:
        """trl's sampler with the order of an uninterrupted run."""
        return PromptSampler(super()._get_train_sampler(*args, **kwargs), self)  # type: ignore[misc]
