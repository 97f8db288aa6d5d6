"""Initialize LoRA adapters from the base's weights (PiSSA, OLoRA, LoftQ) or from the first rows (EVA).

PiSSA and OLoRA move a part of each adapted weight W from the base into the adapter: W = W' + s B0 A0. The run trains A
and B on W'. The saved adapter has twice the rank, [B, -B0] [A; A0]. It fits the published base, because it adds s (B A
- B0 A0) to W (peft converts in the same way, ``path_initial_model_for_weight_conversion``). A resumed run splits the
saved adapter and removes the same part from the base again. A method such as dpo compares with the published base, W' +
s B0 A0: its reference is a frozen adapter with A0 and B0. LoftQ (`loftq.py`) leaves the base unchanged: its adapters
correct the rounding of a 4-bit base. Its reference also is a frozen adapter.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import partial
from typing import Any

from ...core.errors import RunError, say
from ...core.fault_tolerance import FaultTolerant
from ...core.feature import Bundle, Feature, Model, Tokenizer, Trainer
from .adapters import ADAPTER, REFERENCE, add_reference
from .loftq import initialize_from_rounding

CHANGES_THE_BASE = ("pissa", "olora")
MOST_PASSES = 100
"""EVA makes at most this many passes over the rows, until its components converge. peft has no such limit."""
A, B = f".lora_A.{ADAPTER}.weight", f".lora_B.{ADAPTER}.weight"


class AdapterInit(Feature):
    """Hooks for a run with `lora(init = ...)`."""

    def trainer_made(self, bundle: Bundle, trainer: Trainer, tokenizer: Tokenizer) -> None:
        """Pass the bundle to the trainer, which initializes the adapters when training starts. If the method compares
        with the base, also add a frozen adapter without dropout for the reference; it is initialized at the same time,
        and not saved, because every start of the run makes it again.
        """
        trainer.bundle = bundle
        if compares(bundle):
            config = copy(trainer.model.peft_config[ADAPTER])
            config.lora_dropout = 0.0
            add_reference(trainer.model, config)

    def made(self, bundle: Bundle, trainer: Trainer) -> Iterator[tuple[str, object, object]]:
        """Check that the reference model has its own frozen adapter. Without this adapter, the changed base would be
        the reference.
        """
        yield "a frozen adapter of the reference", compares(bundle), REFERENCE in trainer.model.peft_config


class AdapterInitTrainer(FaultTolerant):
    """Trainer methods for a run with `lora(init = ...)`."""

    bundle: Bundle
    model: Model

    def train(self, resume_from_checkpoint: str | None = None, **options: Any) -> Any:
        """Initialize the adapters, or restore the base of the checkpoint, before the model is wrapped; then train."""
        plan, model = self.bundle.lora, self.model
        assert plan is not None
        name, layers = plan["init"], dict(adapted_layers(model))
        if name in CHANGES_THE_BASE:
            if resume_from_checkpoint is None:
                initialize_from_weights(plan, layers, self.args.seed)
                start = {key: weight.detach().to("cpu", copy=True) for key, weight in matrices(layers)}
            else:
                start = restored(layers, resume_from_checkpoint)
            convert(model, start)
            if compares(self.bundle):
                initialize_reference(layers, start)
        elif name == "loftq":
            self._initialize_by_loftq(layers, resume_from_checkpoint is None)
        elif resume_from_checkpoint is None:
            initialize_from_rows(self.bundle, self)
        if resume_from_checkpoint is None:
            say(f"adapters of {len(layers)} layers are initialized by {name}")
        return super().train(resume_from_checkpoint=resume_from_checkpoint, **options)  # type: ignore[misc]

    def _initialize_by_loftq(self, layers: Mapping[str, object], begins: bool) -> None:
        """Initialize the adapters and the reference. If training resumes, only the reference is initialized."""
        if begins or compares(self.bundle):
            initialize_from_rounding(self.bundle, self.model, layers)
        if compares(self.bundle):
            start = {key: weight.detach().to("cpu", copy=True) for key, weight in matrices(layers)}
            initialize_reference(layers, start)
            self.model.save_pretrained = partial(self.model.save_pretrained, selected_adapters=[ADAPTER])


def adapted_layers(model: Model) -> Iterator[tuple[str, Any]]:
    """The adapted linear layers, by their full names in the PeftModel."""
    for name, module in model.named_modules():
        if ADAPTER in (getattr(module, "lora_A", None) or ()):
            yield name, module


def matrices(layers: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The A and B matrices of the layers, by their names in the PeftModel."""
    for name, layer in layers.items():
        yield name + A, layer.lora_A[ADAPTER].weight
        yield name + B, layer.lora_B[ADAPTER].weight


def initialize_from_weights(plan: Mapping[str, Any], layers: Mapping[str, Any], seed: int) -> None:
    """Initialize the layers by peft's PiSSA or OLoRA, which change the base's weights. Raises RunError if a layer is
    narrower than the rank.

    peft makes float32 matrices. Under ZeRO-3, adapters have the base's dtype: the matrices are rounded to it, and the
    base then lacks the product of the rounded matrices, as after a resume.
    """
    import torch

    iterations = plan.get("init_iterations")
    for name, layer in layers.items():
        weight = layer.get_base_layer().weight
        small = min(getattr(weight, "ds_shape", weight.shape))
        if small < plan["rank"]:
            raise RunError(
                f"{plan['init']} finds only {small} directions in {name}, fewer than the rank {plan['rank']}"
            )
        kind = layer.lora_A[ADAPTER].weight.dtype
        with torch.no_grad(), torch.random.fork_rng(), gathered(weight):
            before = weight.data.clone() if kind != torch.float32 else None
            torch.manual_seed(seed)  # peft's approximate SVD starts from random numbers, so the seed is set
            if plan["init"] == "olora":
                layer.olora_init(ADAPTER)
            else:
                layer.pissa_init(ADAPTER, f"pissa_niter_{iterations}" if iterations else "pissa")
            if before is not None:
                down, up = layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
                down.data, up.data = down.data.to(kind), up.data.to(kind)
                layer.get_base_layer().weight.data = _without(layer, before, up.data, down.data)


def restored(layers: Mapping[str, Any], checkpoint: str) -> dict[str, object]:
    """Read the adapter's initial matrices from a checkpoint. Subtract their product from the base's weights, as peft
    did at the first start. Return the matrices by name.
    """
    import torch

    saved, start = _read(checkpoint), {}
    for name, layer in layers.items():
        rank = layer.r[ADAPTER]
        base = layer.get_base_layer().weight
        up, down = saved[name + _as_saved(B)], saved[name + _as_saved(A)]
        with torch.no_grad(), gathered(base):
            start[name + A], start[name + B] = down[rank:].contiguous(), -up[:, rank:].contiguous()
            base.data = _without(layer, base.data, start[name + B], start[name + A])
    return start


def _without(layer: Any, base: Any, up: Any, down: Any) -> Any:
    """The base's weight minus the product of the adapter's matrices, in the base's dtype."""
    part = layer.scaling[ADAPTER] * up.to(base.device).float() @ down.to(base.device).float()
    return (base.float() - (part.T if getattr(layer, "fan_in_fan_out", False) else part)).to(base.dtype)


def compares(bundle: Bundle) -> bool:
    """Whether the method compares with a reference model. If so, the reference needs a frozen adapter."""
    assert bundle.lora is not None
    return bool(bundle.lora.get("reference"))


def initialize_reference(layers: Mapping[str, Any], start: Mapping[str, object]) -> None:
    """Give the adapter "ref" the initial matrices. With this adapter, the model is the published base, up to rounding.

    DoRA's magnitudes are copied from the trained adapter, where they were computed before the base changed.
    """
    import torch

    for name, layer in layers.items():
        pairs = [(layer.lora_A[REFERENCE].weight, start[name + A]), (layer.lora_B[REFERENCE].weight, start[name + B])]
        if ADAPTER in layer.lora_magnitude_vector:
            both = layer.lora_magnitude_vector
            pairs.append((both[REFERENCE].weight, both[ADAPTER].weight))
        for weight, value in pairs:
            with torch.no_grad(), gathered(weight):
                weight.copy_(value)


def gathered(weight: Any) -> AbstractContextManager[object]:
    """A context manager: inside it, a weight that ZeRO-3 has sharded is complete. Process 0's changes are kept."""
    if not hasattr(weight, "ds_id"):
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(weight, modifier_rank=0)  # type: ignore[no-any-return]


def convert(model: Model, start: Mapping[str, Any]) -> None:
    """Make the model save and load its adapter in the form that fits the published base. ``start`` has the initial
    matrices by name."""
    save = model.save_pretrained

    def save_pretrained(folder: str, **options: Any) -> None:
        own, stated = model.peft_config, model.peft_config[ADAPTER]
        # the rank is doubled, so alpha grows too: the scaling, alpha / rank or alpha / sqrt(rank), must stay the same
        scale = 2**0.5 if stated.use_rslora else 2
        wide = copy(stated)
        wide.r, wide.lora_alpha = 2 * stated.r, scale * stated.lora_alpha
        options["state_dict"] = doubled(options.get("state_dict") or model.state_dict(), start)
        try:
            model.peft_config = {**own, ADAPTER: wide}
            save(folder, selected_adapters=[ADAPTER], **options)
        finally:
            model.peft_config = own

    model.save_pretrained = save_pretrained
    model.load_adapter = partial(_load, model)


def doubled(state: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, object]:
    """A state dict of adapters with twice the rank; their second half subtracts the initial matrices."""
    import torch

    found = dict(state)
    for name, first in start.items():
        negative = name.endswith(B)
        own = found[name]
        other = (-first if negative else first).to(own.device)
        found[name] = torch.cat([own, other], dim=1 if negative else 0)
    return found


def _load(model: Model, folder: str, *args: Any, **options: object) -> object:
    """Load an adapter that this run has saved, but without the half that subtracts the initial matrices. peft's
    ``load_adapter`` would load both halves.
    """
    from peft import set_peft_model_state_dict

    saved, layers = _read(folder), dict(adapted_layers(model))
    for name, layer in layers.items():
        rank = layer.r[ADAPTER]
        saved[name + _as_saved(A)] = saved[name + _as_saved(A)][:rank].contiguous()
        saved[name + _as_saved(B)] = saved[name + _as_saved(B)][:, :rank].contiguous()
    return set_peft_model_state_dict(model, saved, adapter_name=ADAPTER)


def _read(folder: str) -> dict[str, Any]:
    from peft import load_peft_weights

    return dict(load_peft_weights(folder, device="cpu"))


def _as_saved(name: str) -> str:
    """Remove the adapter's name from the end of a weight's name, because peft's saved files do not contain it."""
    return name.replace(f".{ADAPTER}", "")


def initialize_from_rows(bundle: Bundle, trainer: Any) -> None:
    """Initialize the A matrices by EVA: by the principal components of each layer's inputs for the first training rows.

    Every layer keeps the rank of the bundle (peft's ``rho`` of 1). All processes read the same rows. Raises RunError if
    the rows have fewer trained tokens than a layer has components, or if the components do not converge.
    """
    import torch
    from peft import EvaConfig, get_eva_state_dict

    plan, model = bundle.lora, trainer.model
    assert plan is not None
    assert plan["rank"] is not None
    config = copy(model.peft_config[ADAPTER])
    config.eva_config = EvaConfig(rho=1.0)
    count = min(plan["init_rows"], len(trainer.train_dataset))
    rows = [trainer.train_dataset[i] for i in range(count)]
    batches = batched(rows, trainer.data_collator, bundle.run["micro"], plan["rank"])
    if not batches:
        raise RunError(
            f"the first {count} rows have fewer than {plan['rank']} trained tokens, the rank of the adapters; raise "
            "`init_rows`"
        )
    left = [MOST_PASSES * len(batches)]

    def forward(model: Model, batch: Mapping[str, Any]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise RunError(
                f"EVA's components have not converged after {MOST_PASSES} passes over {count} rows; raise `init_rows`, "
                "or lower `rank`"
            )
        with trainer.accelerator.autocast():
            model(**{name: value for name, value in batch.items() if name != "labels"}, use_cache=False)

    with warnings.catch_warnings():
        # a batch may contain a plain number, such as the length of the longest packed document; peft warns about it and
        # leaves it unchanged
        warnings.filterwarnings("ignore", "input of type <class 'int'> could not be moved")
        found = get_eva_state_dict(
            model, batches, config, forward, prepare_model_inputs_fn=lambda batch, _: _trained(batch).nonzero(),
            adapter_name=ADAPTER, gather_distributed_inputs=False, show_progress_bar=False,
        )  # fmt: skip
    with torch.no_grad():
        for name, layer in adapted_layers(model):
            layer.lora_A[ADAPTER].weight.copy_(found[name])


def batched(rows: list[Any], collate: Callable[[list[Any]], dict[str, Any]], micro: int, rank: int) -> list[object]:
    """Batches of at least ``micro`` rows. Each batch has at least ``rank`` trained tokens, because peft skips batches
    with fewer trained tokens.
    """
    batches: list[object] = []
    kept: list[object] = []
    for row in rows:
        kept.append(row)
        if len(kept) < micro:
            continue
        batch = collate(list(kept))
        if int(_trained(batch).sum()) >= rank:
            batches.append(batch)
            kept = []
    return batches


def _trained(batch: Mapping[str, Any]) -> Any:
    """A boolean mask (rows, positions) of the trained tokens in a batch."""
    import torch

    mask = batch.get("attention_mask")
    found = torch.ones_like(batch["input_ids"]) if mask is None or mask.shape != batch["input_ids"].shape else mask
    return found.bool() & (batch["labels"] != -100)
