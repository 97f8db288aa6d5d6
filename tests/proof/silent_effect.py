"""Find silent effects: after a training step, compare what the trainer really has with what its bundle states. This
program runs in the stack's interpreter.

`Watch` instruments a trainer before `train()`. Afterwards, `problems()` lists in words what differs from the bundle:
dtypes of weights, adapters and optimizer states; the trained weights; the arguments; the attention; whether packed
documents attend to each other (silent_effect_packing.py); the scale of loss and gradient (silent_effect_loss.py); and
the labels, the optimizer's groups, the rates and the saved weights (silent_effect_meaning.py).
"""

from __future__ import annotations

import math
import re
from typing import Any

import inspect_bundles
import silent_effect_loss
import silent_effect_meaning
import silent_effect_packing

ADAPTED = ("lora_", "oft_", "vera_lambda_", "hada_", "miss_block", "modules_to_save", "trainable_tokens")
"""The names of adapter weights contain one of these texts."""
PACKED = ("Params4bit", "Int8Params")
HALF = ("bfloat16", "float16")
CHANGED = {
    "deepspeed": "the object holds the file's content",
    "gradient_checkpointing": "trl puts it into the model and takes it out of the arguments",
    "gradient_checkpointing_kwargs": "the same",
    "half_precision_backend": "transformers 4.52 names the CPU's, where a GPU is stated",
}
"""Maps arguments whose values a trainer may change after it got them to the reason."""


LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")


def _left(plan: dict[str, Any], name: str, names: list[str]) -> tuple[bool, ...]:
    """The values that a weight's `requires_grad` may have under `freeze`: `(True,)`, `(False,)`, or both if modules or
    patterns in the spec decide about this weight.
    """
    named = {*(plan["modules"] or []), *(plan["layer_modules"] or []), "score", "lm_head"} & set(name.split("."))
    if named or any(re.match(one, name) for one in plan["parameters"] or []):
        return (True, False)
    count = 1 + max((int(found[1]) for one in names if (found := LAYER.search(one))), default=-1)
    own = LAYER.search(name)
    first, last = plan["first"] or 0, plan["last"] or 0
    chosen = own is not None and (int(own[1]) < first or int(own[1]) >= count - last)
    return (chosen and plan["layer_modules"] is None,)


class Watch:
    """Records what a trainer has before, during and after its steps. The records are then compared with the trainer's
    bundle.
    """

    def __init__(self, run: Any, trainer: Any) -> None:
        self.run, self.trainer, self.plan = run, trainer, run.plan
        self.made = {name: inspect_bundles.plain(getattr(trainer.args, name, None)) for name in run.plan["arguments"]}
        self.losses: list[float] = []
        self.rate = 0.0
        self.packed = {name for name, one in trainer.model.named_parameters() if type(one).__name__ in PACKED}
        self.before: dict[str, Any] = {}
        self.trained: set[str] = set()
        self.moving: set[str] = set()
        self.found: list[str] = []
        self.scale = silent_effect_loss.Scale(run, trainer)
        self.meaning = silent_effect_meaning.Meaning(run, trainer)
        self.step, trainer.training_step = trainer.training_step, self._step
        if self.made.get("eval_strategy") not in (None, "no") and trainer.eval_dataset is not None:
            trainer.add_callback(self._evaluated(run.job["steps"]))

    @property
    def method(self) -> str:
        return str((self.plan.get("method") or {}).get("name", "sft"))

    def _gathered_weights(self) -> dict[str, Any]:
        """Every weight by its name. A weight that is divided among processes is gathered."""
        import torch

        weights = dict(self.trainer.model.named_parameters())
        out: dict[str, Any] = {}
        if any(hasattr(one, "ds_id") for one in weights.values()):
            import deepspeed

            for one in weights.values():
                # While a layer is in use, DeepSpeed marks its weights as gathered. trl 0.18 runs a reward model twice
                # before the backward pass; then one normalization layer stays marked until the next step.
                one.ds_active_sub_modules.clear()
            with deepspeed.zero.GatheredParameters(list(weights.values())):
                return {name: one.detach().clone() for name, one in weights.items()}
        for name, one in weights.items():
            kept = one.detach()
            out[name] = (kept.full_tensor() if hasattr(kept, "full_tensor") else kept).to(torch.device("cpu")).clone()
        return out

    def _step(self, *given: Any, **named: Any) -> Any:
        inputs = given[1] if len(given) > 1 else named["inputs"]
        first = not self.trainer.state.global_step
        if first and not self.before:
            self.before = self._gathered_weights()
            self.trained = {name for name, one in self.trainer.model.named_parameters() if one.requires_grad}
        if first:
            self.scale.before(inputs)
            if len(self.losses) == 0:
                self.meaning.labels(inputs)
        groups = getattr(self.trainer.optimizer, "param_groups", None) or []
        # The learning rate is read before DeepSpeed's step, which also advances the schedule.
        self.rate = max([self.rate, *(float(group["lr"]) for group in groups)])
        loss = self.step(*given, **named)
        self.losses.append(float(loss.detach()))
        if first:
            self.scale.after(float(loss.detach()))
        for name, one in self.trainer.model.named_parameters():
            if one.grad is not None and bool((one.grad != 0).any()):
                self.moving.add(name)
        return loss

    def _evaluated(self, steps: int) -> Any:
        """A callback that evaluates after the last step and checks the losses of the evaluation."""
        from transformers import TrainerCallback

        watch = self

        class Evaluated(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                control.should_evaluate = control.should_evaluate or state.global_step >= steps

            def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **_: Any) -> None:
                bad = [name for name, one in metrics.items() if name.endswith("loss") and not math.isfinite(one)]
                if not watch._unscaled:
                    watch.found += [f"the evaluation gives {name} = {metrics[name]}" for name in bad]

        return Evaluated()

    def problems(self) -> list[str]:
        """Describe everything in the trainer that differs from the bundle. Empty if nothing does."""
        for module in self.trainer.model.modules():
            # FSDP2 leaves the root module's weights gathered and in the compute dtype; this shards them again
            if hasattr(module, "reshard"):
                module.reshard()
        out = [*self.found, *self._numbers(), *self._kinds(), *self._states(), *self._set(), *self._arguments()]
        if not out:
            out += self.scale.problems()
            out += self.meaning.problems()
        return [*out, *silent_effect_packing.problems(self.run, self.trainer)]

    @property
    def _unscaled(self) -> bool:
        """Whether weights may become infinite or NaN in this run on a CPU. They may if the spec has a GPU and fp16
        weights: fp16 needs a gradient scaler, which exists only on a GPU.
        """
        return self.plan["model"]["dtype"] == "float16" and self.plan["run"]["gpu"] is not None

    def _numbers(self) -> list[str]:
        if not self.losses:
            return ["no step was taken"]
        bad = [one for one in self.losses if not math.isfinite(one)]
        if bad and not self._unscaled:
            return [f"the loss is {bad[0]}"]
        if self.method not in ("grpo", "rloo") and not any(self.losses):
            return ["the loss is 0"]
        return []

    def _kinds(self) -> list[str]:
        """Check the dtypes of weights. The base model must have the dtype `model.dtype`, and the adapters the dtype
        that the bundle states. If the precision is bf16 or fp16, DeepSpeed converts base and adapters to this
        precision.
        """
        values, seen = self.run.stated, {}
        base = self.plan["model"]["dtype"]
        zero = bool(self.plan["arguments"].get("deepspeed"))
        half = {"bfloat16"} if values["bf16"] else {"float16"} if values["fp16"] else set()
        lora = self.plan.get("lora") or {}
        zeroed = zero and self.run.job.get("unpacked") and self.plan["run"]["zero_stage"] == 3
        # Here the quantized base is replaced by a base that is not packed. Under ZeRO-3, weights that are not packed
        # are loaded in the dtype of the precision (XP573); packed weights are not.
        if zeroed:
            base = "float32" if not half else next(iter(half))
        quantized, stated = lora.get("bits"), lora.get("adapter_dtype")
        for name, one in self.trainer.model.named_parameters():
            kind = str(one.dtype).removeprefix("torch.")
            adapted = any(part in name for part in ADAPTED)
            allowed = {base} | (half if zero else set())
            # under FSDP, accelerate casts trained weights to float32 (docs/casts.md)
            allowed |= {"float32"} if self.run.sharded and half else set()
            # zero.Init converts a float16 model to float32 if fp16 is off in DeepSpeed's configuration
            allowed |= {"float32"} if zero and base == "float16" else set()
            if adapted:
                allowed = ({stated} if stated else {"float32", base, *half}) | (half if zero else set())
                # trl 1.16 leaves DoRA's magnitudes in float32, and peft the frozen adapter of a reference
                allowed |= {"float32"} if "lora_magnitude_vector" in name or ".ref." in name else set()
                # Modules that are fully trained next to adapters have the dtype of the base (XP305 warns about this;
                # see keep_scores).
                allowed |= {base} if ".score." in name or ".modules_to_save." in name else set()
            elif quantized:
                # prepare_model_for_kbit_training of peft converts weights that are not quantized to float32
                allowed |= {"uint8", "int8", "float32", *half, str(lora.get("storage_dtype", "uint8"))}
            if kind not in allowed:
                seen.setdefault((adapted, kind, tuple(sorted(allowed))), []).append(name)
        return [
            f"{len(names)} {'adapter' if adapted else 'base'} weights are {kind}, and {' or '.join(allowed)} is stated"
            f" ({names[0]})"
            for (adapted, kind, allowed), names in seen.items()
        ]

    def _states(self) -> list[str]:
        """Check that the optimizer's states of each weight have the dtype of the weight, or float32."""
        optimizer = getattr(self.trainer.optimizer, "optimizer", self.trainer.optimizer)
        kinds = {str(one.dtype).removeprefix("torch.") for one in self.trainer.model.parameters() if one.requires_grad}
        allowed = {
            "float32",
            *(kinds - ({"float16", "bfloat16"} if self.plan["arguments"].get("deepspeed") else set())),
        }
        if str(inspect_bundles.plain(self.trainer.args.optim)).endswith("bit"):
            return []
        seen = set()
        for state in getattr(optimizer, "state", {}).values():
            for value in state.values() if isinstance(state, dict) else ():
                if hasattr(value, "is_floating_point") and value.is_floating_point() and value.dim():
                    seen.add(str(value.dtype).removeprefix("torch."))
        return [f"states of the optimizer are {one}, and {' or '.join(sorted(allowed))} is stated"
                for one in sorted(seen - allowed)]  # fmt: skip

    def _set(self) -> list[str]:
        """Check which weights are trained. The bundle says whether all weights are trained, only the adapters, or only
        the weights that `freeze` leaves trainable.
        """
        out, names = [], list(self.before)
        now = {name for name, one in self.trainer.model.named_parameters() if one.requires_grad}
        if now != self.trained:
            out.append(f"another set of weights is trained after the step: {sorted(now ^ self.trained)[:3]}")
        if self.plan.get("lora"):
            wrong = [name for name in self.trained if not any(part in name for part in ADAPTED)]
        elif self.plan.get("freeze"):
            frozen, same = self.plan["freeze"], self._shared()
            wrong = [
                name
                for name in names
                if not any((name in self.trained) in _left(frozen, one, names) for one in same.get(name, [name]))
            ]
        else:
            wrong = [name for name in names if name not in self.trained]
        if wrong or not self.trained:
            out.append(f"other weights are trained than stated: {sorted(wrong)[:3] or 'none'}")
        after = self._gathered_weights()
        # for its CPU kernels, bitsandbytes stores 4-bit weights in another order, so they seem to have changed
        compared = [name for name in names if name in after and name not in self.packed]
        changed = {name for name in compared if bool((after[name] != self.before[name]).any())}
        frozen = changed - self.trained
        if frozen:
            out.append(f"weights changed that are not trained: {sorted(frozen)[:3]}")
        coarse = all(str(one.dtype).removeprefix("torch.") in HALF for one in after.values())
        learns = self.moving or bool(self.plan["arguments"].get("deepspeed"))
        if not changed and self.rate > 1e-9 and learns and not coarse and self.method not in ("grpo", "rloo"):
            out.append(f"no weight changed at a learning rate of {self.rate}")
        return out + self._alike(after)

    def _shared(self) -> dict[str, list[str]]:
        """For each weight, all its names. If the output head is tied to the embedding, both are one weight with two
        names.
        """
        model = self.trainer.model
        first = {id(one): name for name, one in model.named_parameters()}
        out: dict[str, list[str]] = {}
        for name, one in model.named_parameters(remove_duplicate=False):
            out.setdefault(first[id(one)], []).append(name)
        return out

    def _alike(self, after: dict[str, Any]) -> list[str]:
        """Check that the weights of all processes are equal."""
        import torch

        if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
            return []
        sums = torch.stack([after[name].double().abs().sum() for name in sorted(self.trained) if name in after])
        least, most = sums.clone(), sums.clone()
        torch.distributed.all_reduce(least, op=torch.distributed.ReduceOp.MIN)
        torch.distributed.all_reduce(most, op=torch.distributed.ReduceOp.MAX)
        apart = float(((most - least) / most.clamp(min=1e-9)).max())
        return [f"the processes hold other weights after the step, by {apart:.1e}"] if apart > 1e-6 else []

    def _arguments(self) -> list[str]:
        """Compare the trainer's arguments, attention and cache with the values in the bundle. Return the
        differences.
        """
        out = []
        for name, stated in self.plan["arguments"].items():
            if self.trainer.args.world_size == 1 and name == "average_tokens_across_devices":
                continue  # this test runs one process for a bundle of several, so nothing is averaged across them
            if name in CHANGED or not hasattr(self.trainer.args, name):
                continue
            seen = inspect_bundles.plain(getattr(self.trainer.args, name))
            if not inspect_bundles.same(name, stated, seen) and not (stated is None and seen == self.made.get(name)):
                out.append(f"after the step {name} is {seen!r}, and {stated!r} is stated")
        config = self.trainer.model.config
        seen, stated = getattr(config, "_attn_implementation", None), self.plan["model"]["attn_implementation"]
        if stated and seen != stated:
            out.append(f"the model attends with {seen}, and {stated} is stated")
        return out
