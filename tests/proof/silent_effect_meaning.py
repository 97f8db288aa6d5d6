"""Check what determines the trained model: which tokens have a loss, the optimizer's parameter groups, the learning
rates, and the saved weights.

The first three are computed a second time, independently of the trainer: the labels of the first batch from the rows,
the groups from the names of the weights, and the learning rate of every step from the published formula of the
schedule. The saved weights are compared with the weights in memory.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

UNDECAYED = ("bias", "norm", "ln_", "layernorm", "rmsnorm")
"""The names of biases and norms contain one of these texts. They have no weight decay."""
DECAYED_BEFORE = re.compile(r"(?:^|[._])norm\.weight$")
"""Matches the end of the names of norms to which transformers before 4.53 applies weight decay in many families (the
advisory norms-decayed).
"""
COPY = re.compile(r"\.modules_to_save\.[^.]+")
"""Matches the part that PEFT puts into the name of a module that is trained as a copy: `.modules_to_save.default` in
`norm.modules_to_save.default.weight`.
"""
Shape = Callable[[float, Mapping[str, Any]], float]
RATES: dict[str, Shape] = {
    "linear": lambda done, _: 1 - done,
    "cosine": lambda done, given: max(0.0, 0.5 * (1 + math.cos(math.pi * 2 * given.get("num_cycles", 0.5) * done))),
    "constant": lambda *_: 1.0,
    "constant_with_warmup": lambda *_: 1.0,
}
"""Maps each schedule to a function that returns the learning rate as a share of its peak. Its first argument is the
share of the steps after the warm-up that are done.
"""
SAMPLES = 16
"""Learning rates are compared at this many steps, which are spread over the run."""


class Meaning:
    """What a trainer really uses: labels, groups, learning rates and weights. They are compared with what the bundle
    states.
    """

    def __init__(self, run: Any, trainer: Any) -> None:
        self.run, self.trainer, self.arguments = run, trainer, run.plan["arguments"]
        self.method = str((run.plan.get("method") or {}).get("name", "sft"))
        self.found: list[str] = []

    def problems(self) -> list[str]:
        """Describe everything that differs from what the bundle states."""
        return [*self.found, *self.groups(), *self.rates(), *self.saved()]

    def labels(self, inputs: Mapping[str, Any]) -> None:
        """Check which tokens of the first micro-batch have a loss: all tokens of plain texts, and only the completions
        of prompts.
        """
        if self.method != "sft" or "labels" not in inputs:
            return
        ids, labels = inputs["input_ids"], inputs["labels"]
        learned = labels != -100
        if bool((labels[learned] != ids[learned]).any()):
            self.found.append("a label is not the token at its place")
        columns = set(self.run.rows.column_names)
        sources = {one["shape"] for one in self.run.plan["data"]["sources"]}
        if self.arguments.get("assistant_only_loss") or len(sources) > 1:
            return
        if "completion" not in columns or self.arguments.get("completion_only_loss") is False:
            self._all_learned(inputs, learned)
        elif self.arguments.get("packing") is not True and not self.arguments.get("padding_free"):
            self._completions_learned(ids, learned)

    def _all_learned(self, inputs: Mapping[str, Any], learned: Any) -> None:
        mask, locations = inputs.get("attention_mask"), inputs.get("position_ids")
        wanted = learned | True if mask is None else mask.bool()
        if locations is not None and mask is None:
            wanted = wanted & (locations != 0)
        if bool((learned != wanted).any()):
            self.found.append(f"{int(learned.sum())} tokens are learned of {int(wanted.sum())}")

    def _completions_learned(self, ids: Any, learned: Any) -> None:
        tokenizer, most = self.run.tokenizer, self.arguments.get("max_length") or self.arguments.get("max_seq_length")
        texts = {_text(one) for one in self.run.rows["completion"]}
        for row, mask in zip(ids, learned, strict=True):
            text = tokenizer.decode(row[mask], skip_special_tokens=True).strip()
            cut = most is not None and len(row) >= most
            if not cut and text not in texts:
                self.found.append(f"the tokens learned are {text[:60]!r}, which is no completion")
                return

    def groups(self) -> list[str]:
        """Check that each trained weight is in exactly one parameter group. Biases and norms must have no weight decay,
        all other weights must have it.
        """
        optimizer = getattr(self.trainer.optimizer, "optimizer", self.trainer.optimizer)
        if self.arguments.get("deepspeed") or self.run.sharded or type(optimizer).__name__ == "LayerWiseDummyOptimizer":
            return []
        names = {id(one): name for name, one in self.trainer.model.named_parameters() if one.requires_grad}
        placed = [id(one) for group in optimizer.param_groups for one in group["params"]]
        missing = [name for one, name in names.items() if one not in set(placed)]
        out = [f"weights that no group of the optimizer has: {missing[:3]}"] if missing else []
        if len(placed) != len(set(placed)):
            out.append("a weight is in two groups of the optimizer")
        decay = self.arguments.get("weight_decay") or 0.0
        if decay and not (self.run.plan.get("lora") or {}).get("lr_ratio"):
            import transformers

            older = tuple(map(int, transformers.__version__.split(".")[:2])) < (4, 53)
            wrong = [
                names[id(one)]
                for group in optimizer.param_groups
                for one in group["params"]
                if id(one) in names
                and bool(group.get("weight_decay")) is _undecayed(names[id(one)])
                and not (older and DECAYED_BEFORE.search(COPY.sub("", names[id(one)])))
            ]
            out += [f"the decay of {wrong[0]} is not as its kind says ({len(wrong)} weights)"] if wrong else []
        return out

    def rates(self) -> list[str]:
        """Check the learning rates of all steps by the formula of the schedule."""
        schedule, most = self.trainer.lr_scheduler, self.trainer.state.max_steps
        shape = RATES.get(str(self.arguments.get("lr_scheduler_type")))
        made = getattr(schedule, "lr_lambdas", None)
        if any(type(one).__name__ == "StopCallback" for one in self.trainer.callback_handler.callbacks) and made:
            most = getattr(made[0], "keywords", {}).get("num_training_steps", most)  # `patience` made the run shorter
        if shape is None or not made or most < 2:
            return []
        given = self.arguments.get("lr_scheduler_kwargs") or {}
        warm = self.trainer.args.get_warmup_steps(most)
        for step in sorted({min(round(i * most / SAMPLES), most - 1) for i in range(SAMPLES + 1)}):
            if str(self.arguments["lr_scheduler_type"]) == "constant":
                wanted = 1.0
            elif step < warm:
                wanted = step / max(1, warm)
            else:
                wanted = shape((step - warm) / max(1, most - warm), given)
            if not math.isclose(made[0](step), wanted, rel_tol=1e-6, abs_tol=1e-9):
                return [f"the rate of step {step} of {most} is {made[0](step):.6f} of the peak, not {wanted:.6f}"]
        return []

    def saved(self) -> list[str]:
        """Check that `save_model` writes each trained weight with its value."""
        if self.arguments.get("deepspeed") or self.run.sharded or self.trainer.args.world_size > 1:
            return []
        adapters = self.run.plan.get("lora") or {}
        if adapters.get("bits") or adapters.get("init") in ("pissa", "olora"):
            # Left out: a quantized base, which is not saved, and adapters of PiSSA and OLoRA, whose values are
            # converted when they are saved, so that they fit the published base.
            return []
        if self.arguments.get("save_safetensors") is False:
            return []
        import torch
        from safetensors.torch import load_file

        live = {name: one.detach().cpu() for name, one in self.trainer.model.named_parameters() if one.requires_grad}
        with tempfile.TemporaryDirectory() as folder:
            self.trainer.save_model(folder)
            files = [one for one in os.listdir(folder) if one.endswith(".safetensors")]
            kept = {name: one for file in files for name, one in load_file(os.path.join(folder, file)).items()}
            if not kept:
                return ["no weights were saved"]
            values = {_digest(one) for one in kept.values()}
            halves = {_digest(one.to(torch.bfloat16)) for one in kept.values()}
            lost = [
                name
                for name, one in live.items()
                if one.dim() and _digest(one) not in values and _digest(one.to(torch.bfloat16)) not in halves
            ]
            if lost and not adapters:  # transformers 5 stacks the experts of a layer, and saves each one separately
                again = type(self.trainer.model).from_pretrained(folder, dtype="auto").state_dict()
                lost = [name for name in lost if _digest(again[name].to(live[name].dtype)) != _digest(live[name])]
        return [f"trained weights that are not among the saved ones: {lost[:3]} of {len(lost)}"] if lost else []


def _undecayed(name: str) -> bool:
    last = ".".join(COPY.sub("", name.lower()).split(".")[-3:])
    return any(part in last for part in UNDECAYED)


def _digest(weights: Any) -> tuple[tuple[int, ...], float, float]:
    """The shape of a weight, and two sums of its values. If a save gives the weight another name, the weight can be
    found by its shape and these sums.
    """
    numbers = weights.double().flatten()
    return tuple(weights.shape), float(numbers.sum()), float((numbers * numbers).sum())


def _text(completion: Any) -> str:
    """The text of a completion, which is either a string or a list with one turn."""
    return (completion if isinstance(completion, str) else completion[-1]["content"]).strip()
