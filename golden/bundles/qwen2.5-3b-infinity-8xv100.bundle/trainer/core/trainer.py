"""The trainers of trl with one thing changed: what they write down is meant to be loaded and used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from inspect import signature
from types import SimpleNamespace
from typing import Any

from .arguments import named
from .bundle import Bundle
from .data import joined_sets
from .fault_tolerance import Steady


class Ours:
    """What every trainer here does otherwise than trl's: saved configurations have the key-value cache on.

    In training it is off. Every save goes through ``save_model`` (checkpoints too:
    Trainer._save_checkpoint, transformers 4.52 and 5.23), so a checkpoint that somebody
    loads to look at generates as fast as the final weights do.
    """

    use_cache_saved = True
    data_facts: dict[str, int] | None = None
    publisher: Any = None
    prefix = "eval"
    rates: dict[str, Any] | None = None
    model: Any
    args: Any

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Saves as trl does."""
        self.model.config.use_cache = self.use_cache_saved
        try:
            super().save_model(output_dir, True)  # type: ignore[misc]  # never pushes: `publisher` does, in the end
        finally:
            self.model.config.use_cache = False

    def init_hf_repo(self, *_: Any, **__: Any) -> None:
        """Does nothing: the run made the repository before anything was loaded (hub.prepare)."""
        self.hub_model_id, self.push_in_progress = self.args.hub_model_id, None

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Hands a checkpoint to the publisher, which only process 0 has, with transformers' words for the commit."""
        if self.publisher is None:
            return
        handler: Any = self.callback_handler  # type: ignore[attr-defined]
        state: Any = self.state  # type: ignore[attr-defined]
        if hasattr(handler, "on_push_begin"):  # transformers 5: a tracker may add to the model card
            handler.on_push_begin(self.args, state, self.control)  # type: ignore[attr-defined]
        steps = getattr(self.args.save_strategy, "value", self.args.save_strategy) == "steps"
        done = f"step {state.global_step}" if steps else f"epoch {int(state.epoch)}"
        self.publisher.saved(checkpoint_folder, f"Training in progress, {done}")

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
        """trl's; notes whose metrics are told: of several sets each is evaluated by a call of its own."""
        before, self.prefix = self.prefix, metric_key_prefix
        try:
            return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)  # type: ignore[misc]
        finally:
            self.prefix = before

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """trl's; of several sets that which is evaluated, or the first: the reward trainer of trl 0.18 shows rows."""
        sets = self.eval_dataset  # type: ignore[attr-defined]
        if eval_dataset is None and isinstance(sets, dict):
            name = self.prefix.removeprefix("eval_")
            eval_dataset = name if name in sets else next(iter(sets))
        return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]

    def create_optimizer(self, *given: Any) -> Any:
        """transformers' optimizer without a group that has no weights, as that of biases under adapters.

        DeepSpeed 0.16 drops such a group from its optimizer and not from the schedule, which torch 2.13 refuses. Where
        deepspeed.json names the optimizer, DeepSpeed makes it later, and there are no groups yet.
        """
        optimizer = super().create_optimizer(*given)  # type: ignore[misc]
        groups = getattr(optimizer, "param_groups", None)
        if groups is not None:
            groups[:] = [group for group in groups if group["params"]]
        if self.rates is not None:
            from ..features.adapters import rates

            rates(optimizer, given[0] if given and given[0] is not None else self.model, self.rates)
        return optimizer

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """Weights come back in the type that they are trained in: peft loads adapters as float32.

        Those over a quantized base are trained in bfloat16 where trl 1.16 and the precision say so, and a run that goes
        on would train others.
        """
        kinds = {name: weight.dtype for name, weight in self.model.named_parameters()}
        super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]
        for name, weight in self.model.named_parameters():
            if weight.dtype != kinds[name]:
                weight.data = weight.data.to(kinds[name])

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Tells of missing weights as transformers does, but not of those that are one with a weight that was there."""
        missing = load_result.missing_keys
        if missing:
            weights = {name: weight.data_ptr() for name, weight in self.model.state_dict().items()}
            there = {place for name, place in weights.items() if name not in missing}
            missing[:] = [name for name in missing if weights.get(name) not in there]
        super()._issue_warnings_after_load(load_result)  # type: ignore[misc]


BY_PREFIX = ("loss", "runtime", "samples_per_second", "steps_per_second")
"""The metrics that transformers names by the set itself."""


def named_log(base: Any) -> Any:
    """A class to stand between trl's trainer and transformers': names all metrics of an evaluation by their set.

    transformers calls the loss of a set ``eval_NAME_loss``; what trl adds in its own ``log`` is ``eval_rewards/chosen``
    for every set, and the last one would stand for all.
    """

    def log(self: Any, logs: dict[str, Any], *rest: Any, **more: Any) -> None:
        if self.prefix != "eval" and f"{self.prefix}_loss" in logs:
            own = {f"{self.prefix}_{name}" for name in BY_PREFIX}
            for key in [one for one in logs if one.startswith("eval_") and one not in own]:
                logs[f"{self.prefix}_{key.removeprefix('eval_')}"] = logs.pop(key)
        base.log(self, logs, *rest, **more)

    return type("NamedLog", (base,), {"log": log})


@cache
def trainer_class(config: str) -> Any:
    """trl's trainer of a class of arguments ("trl.DPOConfig" has "trl.DPOTrainer"), saving as above."""
    from transformers import Trainer

    return type("Trainer", (Ours, Steady, named(config.removesuffix("Config") + "Trainer"), named_log(Trainer)), {})


def module_of(kind: Any) -> Any:
    """trl's module that defines the trainer under a class of ``trainer_class``."""
    return sys.modules[kind.__bases__[2].__module__]


def build(bundle: Bundle, args: Any, model: Any, load: Callable[[], Any], **parts: Any) -> Any:
    """The trainer of the bundle's method over ``model``, with adapters and rewards. Raises RunError.

    ``load`` makes the model anew, for the methods that hold a frozen copy beside the trained one.
    """
    from ..features import adapters, frozen_weights, rewards
    from . import weight_dtypes

    kind = trainer_class(bundle.config)
    adapter = adapters.adapter(bundle)
    if adapter is not None:
        parts["peft_config"] = adapter
    if bundle.frozen is not None:
        frozen_weights.freeze(bundle, model)
    if bundle.method in ("grpo", "rloo"):
        parts["reward_funcs"] = rewards.functions(bundle)
        _read_tokens_alone(parts["processing_class"], model)
    if _wants_reference(bundle):
        parts["ref_model"] = load()
    with references(kind, load, model), weight_dtypes.unrounded(bundle, module_of(kind)) as kept:
        trainer = kind(model=model, args=args, **parts)
    weight_dtypes.restore(trainer.model, kept)
    if bundle.method in bundle.stack["losses_not_divided"]:
        # The other trainers of trl 0.18 say so themselves. Without it transformers takes their loss, a mean over the
        # pairs of a micro-batch, for one that is already divided by the accumulation: a sum of gradients, not a mean.
        trainer.model_accepts_loss_kwargs = False
    if bundle.lora is not None and bundle.lora.get("lr_ratio") is not None:
        trainer.rates = {**bundle.lora, "rate": args.learning_rate}
    if bundle.method == "reward" and bundle.lora is not None and bundle.lora["bits"] is not None:
        adapters.keep_scores(trainer.model, args)
    weight_dtypes.check(
        bundle, *(one for one in (trainer.model, getattr(trainer, "ref_model", None)) if one is not None)
    )
    return trainer


def _read_tokens_alone(tokenizer: Any, model: Any) -> None:
    """The tokenizer gives no `token_type_ids` for a model that takes none: trl 0.24 hands them on to its generation."""
    if "token_type_ids" not in signature(type(model).forward).parameters:
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]


def _wants_reference(bundle: Bundle) -> bool:
    precomputed = bundle.arguments.get("precompute_ref_log_probs")
    return bundle.method in bundle.stack["reference_given"] and bundle.lora is None and not precomputed


@contextmanager
def references(kind: Any, load: Callable[[], Any], policy: Any) -> Iterator[None]:
    """While it lasts, the trainer's module loads a reference model by ``load``.

    trl loads it by the model's name alone: without the revision that the bundle pins, and in trl 0.18 (GRPO under
    ZeRO-3 and FSDP) in float32 whatever the policy is; ``model_init_kwargs`` is refused or warned of beside a loaded
    model. trl 0.24 looks the class up in transformers by a configuration that it loads in the same way. DPO and KTO of
    both copy the policy, which ZeRO-3 refuses, and are given one instead. Their KTO joins columns to the rows that it
    evaluates on, which may be several sets.
    """
    module = module_of(kind)
    stand_ins: dict[str, Any] = {
        "concatenate_datasets": joined_sets,
        "create_model_from_path": lambda *_, **__: load(),
        "AutoModelForCausalLM": SimpleNamespace(from_pretrained=lambda *_, **__: load()),
        "AutoConfig": SimpleNamespace(from_pretrained=lambda *_, **__: policy.config),
        "transformers": _Classes(load),
    }
    if hasattr(module, "prepare_deepspeed"):
        stand_ins["prepare_deepspeed"] = _untrained(module.prepare_deepspeed)
    kept = {name: getattr(module, name) for name in stand_ins if hasattr(module, name)}
    for name in kept:
        setattr(module, name, stand_ins[name])
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(module, name, value)


class _Classes:
    """The package transformers, whose classes of models load by ``load``."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self.load = load

    def __getattr__(self, name: str) -> Any:
        import transformers

        found = getattr(transformers, name)
        if isinstance(found, type) and issubclass(found, transformers.PreTrainedModel):
            return SimpleNamespace(from_pretrained=lambda *_, **__: self.load())
        return found


def _untrained(prepare: Callable[..., Any]) -> Callable[..., Any]:
    """trl's ``prepare_deepspeed`` of a reference model, without what trains: no optimizer, no schedule, no offload.

    trl 1.16 leaves them out by itself. trl 0.18 hands the whole file on: under bf16 DeepSpeed 0.16.8 then makes an
    optimizer over no weights (GRPO under ZeRO-1 and 2: "torch.cat(): expected a non-empty list of Tensors"), or one
    that holds float32 copies of every weight of the reference.
    """

    def prepared(model: Any, accelerator: Any) -> Any:
        plugin = accelerator.state.deepspeed_plugin
        whole = plugin.deepspeed_config
        plugin.deepspeed_config = {
            name: value for name, value in whole.items() if name not in ("optimizer", "scheduler")
        }
        zero = whole["zero_optimization"]
        plugin.deepspeed_config["zero_optimization"] = {
            name: zero[name] for name in zero if name != "offload_optimizer"
        }
        try:
            return prepare(model, accelerator)
        finally:
            plugin.deepspeed_config = whole

    return prepared
