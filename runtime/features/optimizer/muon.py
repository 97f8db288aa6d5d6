"""Muon for hidden matrices, and AdamW for the other weights: embeddings, head, norms and biases."""

import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.errors import RunError, say
from ...core.fault_tolerance import FaultTolerant
from ...core.feature import Bundle, Feature, Model, Tokenizer, Trainer

HEADS = ("lm_head", "embed_out", "score")
"""Names of output layers. The output layer of a reward model is `score`."""


class Muon(Feature):
    """Hooks for a run with Muon."""

    def check_build_tools(self, bundle: Bundle) -> list[str]:
        """A finding if there is no C++ compiler: torch compiles a part of DeepSpeed's Muon at the first step."""
        known = ("CXX", "g++", "clang++") if bundle.on_cpu else ("CC", "gcc", "clang")
        names = [os.environ.get(known[0]) or known[1], *known[1:]]
        if not bundle.run["zero_stage"] or any(map(shutil.which, names)):
            return []
        return [f"torch compiles DeepSpeed's Muon when this run starts, and {names[0]} is not on PATH"]

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Pass the bundle's settings for Muon and AdamW to the trainer, which creates the optimizer later."""
        trainer.muon = bundle.plan["muon"]
        trainer.muon_shards = bundle.run["zero_stage"] > 0

    def before_first_step(self, bundle: Bundle, trainer: Trainer) -> None:
        """Print which weights Muon trains and which AdamW trains."""
        say(trainer.muon_line)


class MuonTrainer(FaultTolerant):
    """Trainer methods for a run with Muon."""

    muon: Mapping[str, Any]
    muon_shards: bool
    muon_line: str
    model: Model
    optimizer: object

    def create_optimizer(self, *args: Any) -> object:
        """Muon and AdamW as one optimizer with three groups: hidden matrices; other weights with weight decay; norms
        and biases without weight decay. The logged learning rate is that of the matrices. Raises RunError.
        """
        if self.optimizer is not None:
            return self.optimizer
        model = args[0] if args and args[0] is not None else self.model
        decayed = {*self.get_decay_parameter_names(model)}  # type: ignore[attr-defined]
        matrices, others = divided(model)
        plan, rest = self.muon, [weight for _, weight in others]
        self.muon_line = (
            f"muon trains {_size(matrices):,} weights in {len(matrices)} hidden matrices at lr "
            f"{plan['matrices']['lr']:g}, AdamW the other {_size(rest):,} at lr {plan['others']['lr']:g}"
        )
        parts = {
            plan["others"]["weight_decay"]: [weight for name, weight in others if name in decayed],
            0.0: [weight for name, weight in others if name not in decayed or not plan["others"]["weight_decay"]],
        }
        groups = [(decay, weights) for decay, weights in parts.items() if weights]
        if self.muon_shards:
            from ...library_internals.deepspeed_muon import sharded

            self.optimizer = sharded(plan, matrices, groups)
        else:
            from .muon_with_adamw import MuonWithAdamW

            self.optimizer = MuonWithAdamW(plan, matrices, groups)
        return self.optimizer


def divided(model: Model) -> tuple[list[Any], list[tuple[str, Any]]]:
    """Return a pair: a model's trained hidden matrices, and its other trained weights by name. Raises RunError.

    Adapters on embeddings or head belong to the other weights. Under ZeRO-3, a weight's shape is in ``ds_shape``.
    """
    outer = {id(weight) for module in _outer(model) for weight in module.parameters()}
    matrices, others = list[Any](), list[tuple[str, Any]]()
    for name, weight in model.named_parameters():
        shape = getattr(weight, "ds_shape", weight.shape)
        if not weight.requires_grad:
            continue
        if len(shape) > 2 and "experts" in name:
            raise RunError(f"Muon trains matrices, and {name} is a stack of all experts: write `optimizer adamw`")
        if len(shape) == 2 and id(weight) not in outer and ".lora_embedding_" not in name:
            matrices.append(weight)
        else:
            others.append((name, weight))
    if not matrices:
        raise RunError("Muon trains only hidden matrices, and this run trains none: write `optimizer adamw`")
    return matrices, others


def _outer(model: Model) -> Iterator[Any]:
    """The embeddings and the output layer of a model, with or without a wrapper of peft."""
    from torch.nn import Embedding

    for name, module in model.named_modules():
        if isinstance(module, Embedding) or name.rpartition(".")[2] in HEADS:
            yield module


def _size(weights: list[Any]) -> int:
    return sum(getattr(weight, "ds_numel", weight.numel()) for weight in weights)
