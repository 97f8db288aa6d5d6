"""Distillation: make trl's GKDTrainer (0.18, 0.24) train as DistillationTrainer (1.16) does.

Both trainers train on completions that the student has just generated. The loss is the generalized Jensen-Shannon
divergence between the student's and the teacher's probabilities, averaged over all tokens of an optimizer step.
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ...core.feature import Arguments, Bundle, Feature, Model, Tokenizer, Trainer

IGNORED = -100
"""The label of a token that torch's losses ignore."""


class OnPolicy(Feature):
    """On-policy distillation: the student is trained on completions that it has just generated."""

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Change settings of trl's trainer after its constructor has set them (`OnPolicyTrainer.settle`)."""
        trainer.settle(tokenizer)


class Prompts:
    """A collator that pads prompts on the left. With ``completions``, it adds the rows' own completions: in some
    batches, the run trains on these.
    """

    def __init__(self, tokenizer: Tokenizer, completions: bool) -> None:
        self.tokenizer, self.completions = tokenizer, completions

    def __call__(self, rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
        """The tensors of a batch. Rows without a completion get one later, in ``OnPolicyTrainer``."""
        prompt_ids = [self._prompt_tokens(row["prompt"]) for row in rows]
        prompts, mask = self._padded(prompt_ids, self.tokenizer.pad_token_id, left=True)
        out = {"prompts": prompts, "prompt_attention_mask": mask}
        if self.completions:
            answers = [self._answer(row, ids) for row, ids in zip(rows, prompt_ids, strict=True)]
            ids, answer_mask = self._padded(answers, self.tokenizer.pad_token_id, left=False)
            out |= joined(prompts, mask, ids, answer_mask)
        return out

    def _prompt_tokens(self, prompt: object) -> list[int]:
        if isinstance(prompt, str):
            return list(self.tokenizer(text=prompt)["input_ids"])
        return list(
            self.tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True)[
                "input_ids"
            ]
        )

    def _answer(self, row: Mapping[str, Any], prompt_ids: list[int]) -> list[int]:
        if isinstance(row["prompt"], str):
            ids = self.tokenizer(text=row["completion"], add_special_tokens=False)["input_ids"]
            return [*ids, self.tokenizer.eos_token_id]
        turns = [*row["prompt"], *row["completion"]]
        all_ids = self.tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True)["input_ids"]
        return list(all_ids[len(prompt_ids) :])

    @staticmethod
    def _padded(rows: list[list[int]], pad: int, left: bool) -> tuple[object, object]:
        import torch

        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), pad)
        mask = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            place = slice(longest - len(row), None) if left else slice(len(row))
            ids[number, place] = torch.tensor(row, dtype=torch.long)
            mask[number, place] = 1
        return ids, mask


def joined(prompts: Any, mask: object, answers: Any, answer_mask: object) -> dict[str, object]:
    """The inputs of a step: prompts followed by answers. Only the answers' tokens are labels."""
    import torch

    return {
        "input_ids": torch.cat((prompts, answers), 1),
        "attention_mask": torch.cat((mask, answer_mask), 1),
        "labels": torch.cat((torch.full_like(prompts, IGNORED), answers.masked_fill(answer_mask == 0, IGNORED)), 1),
        "prompts": prompts,
        "prompt_attention_mask": mask,
    }


class OnPolicyTrainer:
    """Methods on top of trl's GKDTrainer: before the first micro-batch of an optimizer step, the student generates all
    completions of the step.

    These methods correct four faults of GKDTrainer: it averages over each micro-batch, uses the temperature only for
    sampling, evaluates on the rows' completions, and masks every padding token, even the end token of an answer.
    """

    args: Arguments
    accelerator: Any
    model: Model
    model_wrapped: object
    generation_config: Any
    waiting: Sequence[Mapping[str, object]] = ()
    written: list[Mapping[str, Any]]
    tokens: object

    def settle(self, tokenizer: Tokenizer) -> None:
        """Change settings of the trainer. Called once, after the trainer's construction."""
        self.share, self.lmbda = float(self.args.lmbda), -1.0  # disables trl's own generation
        self.data_collator = Prompts(tokenizer, self.share < 1)
        self.model_accepts_loss_kwargs = True  # makes transformers divide the loss by the tokens of the step
        self.generation_config.use_cache = True
        ends = self.generation_config.eos_token_id
        self.ends = ends if isinstance(ends, list) else [ends]

    def generalized_jsd_loss(self, student_logits: Any, teacher_logits: Any, **kwargs: object) -> object:
        """trl's loss as a sum, with float32 logits and the sampling temperature."""
        return super().generalized_jsd_loss(  # type: ignore[misc]
            student_logits.float(), teacher_logits.float(), **kwargs, temperature=self.args.temperature, reduction="sum"
        )

    def compute_loss(
        self, model: Model, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> object:
        """The loss, averaged over the tokens of the step; in an evaluation, averaged over the tokens of the batch."""
        loss, outputs = super().compute_loss(model, inputs, return_outputs=True)  # type: ignore[misc]
        if num_items_in_batch is None or not self.model.training:
            loss = loss / (inputs["labels"] != IGNORED).sum().clamp(min=1)
        else:  # DDP averages gradients over the processes, so multiply the sum by their number
            loss = loss * self.args.world_size / num_items_in_batch.clamp(min=1)
        return (loss, outputs) if return_outputs else loss

    def get_batch_samples(self, *args: object, **kwargs: object) -> object:
        """The micro-batches of a step, without the count of their tokens, which is made later. A resumed run restores
        its random states only after this call, so this method must not use random numbers."""
        batches, _ = super().get_batch_samples(*args, **kwargs)  # type: ignore[misc]
        self.waiting = list(batches)
        return batches, 0

    def training_step(self, model: Model, inputs: Any, num_items_in_batch: object = None) -> object:
        """Run trl's step. Before the first micro-batch of a step, the student generates all completions of the step."""
        if self.waiting:
            self.written, self.waiting = [self._completed(batch) for batch in self.waiting], []
            tokens = sum((batch["labels"] != IGNORED).sum() for batch in self.written)
            self.tokens = self.accelerator.gather(tokens).sum()
        # `inputs` is changed in place, because transformers later counts the step's FLOPs from it
        inputs.update(self.written.pop(0))
        return super().training_step(model, inputs, self.tokens)  # type: ignore[misc]

    def prediction_step(self, model: Model, inputs: Any, *rest: object, **kwargs: object) -> object:
        """Run trl's step on completions that the student has just generated."""
        return super().prediction_step(model, self._completed(inputs), *rest, **kwargs)  # type: ignore[misc]

    def _completed(self, batch: Mapping[str, Any]) -> Mapping[str, object]:
        """The batch with the student's completions. The rows' own completions stay in a share of the batches."""
        import torch

        batch = self._prepare_inputs(batch)  # type: ignore[attr-defined]
        if self.share < 1 and random.random() > self.share:
            return batch
        prompts, mask = batch["prompts"], batch["prompt_attention_mask"]
        with self._generating() as student, torch.no_grad():
            ids = student.generate(
                input_ids=prompts,
                attention_mask=mask,
                generation_config=self.generation_config,
            )
        answers = ids[:, prompts.shape[1] :]
        ended = torch.isin(answers, torch.tensor(self.ends, device=answers.device)).long()
        return joined(prompts, mask, answers, (ended.cumsum(1) - ended == 0).long())

    @contextmanager
    def _generating(self) -> Any:
        """A context manager in which the student can generate: its weights are not sharded, and evaluation mode permits
        the KV cache.
        """
        from trl.models.utils import unwrap_model_for_generation

        with unwrap_model_for_generation(self.model_wrapped, self.accelerator) as student:
            trains = student.training
            student.eval()
            try:
                yield student
            finally:
                student.train(trains)
