"""Check the scale of loss and gradient: compute a step's loss and gradient a second time from the same micro-batches,
and compare.

For supervised training, the expected loss is the mean cross-entropy of the answer tokens: with
`average_tokens_across_devices` over all tokens of the step, otherwise over the tokens of each process. For other
methods, the expected loss is the mean of the losses that the trainer computes for the single micro-batches. The
expected gradient is the gradient of the expected loss.
"""

from __future__ import annotations

import copy
from typing import Any

LOOSE, TIGHT = 0.05, 2e-3
"""Relative tolerances for losses: LOOSE in half precision, TIGHT in any other precision."""
BY_ROWS = ("dpo", "kto", "orpo", "reward")


class Scale:
    """Two sums over the micro-batches of a step: the loss and gradient that the step should have, and its actual loss
    and gradient.
    """

    def __init__(self, run: Any, trainer: Any) -> None:
        self.run, self.trainer = run, trainer
        self.total = self.count = self.seen = 0.0
        self.gradient: dict[str, Any] = {}
        self.taken: dict[str, Any] = {}
        self.steps = 0
        values = run.plan["arguments"]
        self.method = str((run.plan.get("method") or {}).get("name", "sft"))
        self.tokens = self.method == "sft"
        zero = run.plan["run"]["zero_stage"] if values.get("deepspeed") else 0
        self.loss = zero < 3 and not run.sharded and self._plain(values)
        self.slope = self.loss and not zero and not self._quantized()

    def _plain(self, values: dict[str, Any]) -> bool:
        """Whether this module can compute the loss a second time: the loss is not random, and the module knows all of
        its terms.
        """
        if self.method not in ("sft", *BY_ROWS) or values.get("neftune_noise_alpha"):
            return False
        config = self.trainer.model.config
        chances = [value for name, value in vars(config).items() if ("drop" in name or "jitter" in name) and value]
        if chances or (self.run.plan.get("lora") or {}).get("dropout"):
            return False
        if not self.tokens:
            return True
        return not (
            values.get("label_smoothing_factor") or values.get("use_liger_kernel") or values.get("router_aux_loss_coef")
            or getattr(config, "output_router_logits", False)
        ) and values.get("loss_type") in (None, "nll", "chunked_nll")  # fmt: skip

    def before(self, inputs: Any) -> None:
        """Compute the loss and the gradient that this micro-batch should have, and add them to the expected sums."""
        if not self.loss:
            return
        import torch

        model, trainer = self.trainer.model, self.trainer
        training = model.training
        # in evaluation mode and without trained weights, bitsandbytes would pack the weights again
        model.train(self._quantized())
        weights = {name: one for name, one in model.named_parameters() if one.requires_grad}
        with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(self.slope):
            with trainer.compute_loss_context_manager():
                given = copy.deepcopy(inputs) if not self.tokens else trainer._prepare_inputs(dict(inputs))
                value, count = self._tokens(given) if self.tokens else (trainer.compute_loss(model, given), 1)
            if self.slope:
                parts = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
                for name, part in zip(weights, parts, strict=True):
                    if part is not None:
                        self.gradient[name] = self.gradient.get(name, 0) + part.double()
        model.train(training)
        self.total += float(value.detach() if hasattr(value, "detach") else value)
        self.count += float(count)

    def _tokens(self, given: dict[str, Any]) -> tuple[Any, int]:
        import torch

        names = ("input_ids", "attention_mask", "position_ids", "token_type_ids")
        row = {name: value for name, value in given.items() if name in names}
        logits = self.trainer.model(**row, use_cache=False).logits.float()
        if "shift_labels" in given:  # a sequence that several processes share
            counted = labels = given["shift_labels"]
        else:
            logits, labels = logits[:, :-1], given["labels"][:, 1:]
            # transformers 4 counts all tokens of a row, and so also the row's first token, which no token predicts
            # (Trainer.get_batch_samples)
            counted = given["labels"] if self.run.job["all_tokens"] else labels
        value = torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=-100, reduction="sum"
        )
        return value, int((counted != -100).sum())

    def after(self, loss: float) -> None:
        """Add the loss that the trainer has computed for this micro-batch to the sum `seen`."""
        self.seen += loss
        self.steps += 1
        if self.slope and self.trainer.accelerator.sync_gradients:
            self.taken = {
                name: one.grad.double() for name, one in self.trainer.model.named_parameters() if one.grad is not None
            }

    def problems(self) -> list[str]:
        """Describe the differences between the expected and the actual loss and gradient."""
        import torch

        if not self.loss:
            return []
        values = self.run.plan["arguments"]
        many = torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1
        world = torch.distributed.get_world_size() if many else 1
        across = self.tokens and values.get("average_tokens_across_devices", False)
        mean = self.total / self.count if self.count else 0.0  # a part of a shared sequence may have no trained token
        numbers = torch.tensor([self.total, self.count, mean, self.seen], dtype=torch.float64)
        if many:
            torch.distributed.all_reduce(numbers)
        total, count, each, seen = numbers.tolist()
        if not count:
            return []
        wanted, seen = total / count if across else each / world, seen / world
        half = values.get("bf16") or self.run.plan["model"]["dtype"] != "float32" or self._quantized()
        limit = LOOSE if half else TIGHT
        out = []
        if abs(seen - wanted) > limit * max(abs(wanted), 1e-3):
            out.append(f"the step's loss is {seen:.6g}, and {wanted:.6g} by the bundle's numbers")
        if self.slope and self.taken:
            shares = torch.tensor([0.0, 0.0], dtype=torch.float64)
            for name, taken in self.taken.items():
                part = self.gradient.get(name)
                part = torch.zeros_like(taken) if part is None else part / (count if across else self.count or 1)
                if many:
                    torch.distributed.all_reduce(part)
                    part = part if across else part / world
                shares += torch.stack([((taken - part) ** 2).sum(), (part**2).sum()])
            apart, size = (float(one) ** 0.5 for one in shares)
            if apart > max(10 * limit * size, 1e-6):
                norm = sum(float((one**2).sum()) for one in self.taken.values()) ** 0.5
                out.append(f"the step's gradient has the norm {norm:.6g}, and {size:.6g} by the bundle's numbers")
        return out

    def _quantized(self) -> bool:
        return bool((self.run.plan.get("lora") or {}).get("bits"))
