"""Import torchtune's YAML for the full, LoRA and DPO recipes. The spec states the defaults of a recipe's components.

Source: torchtune 0.6.1, recipes/full_finetune_*.py, lora_finetune_*.py, *_dpo_*.py and the components that they build.
"""

from __future__ import annotations

import re

from xpc.compiler.importing import families
from xpc.compiler.importing.draft import NULL, Draft
from xpc.compiler.importing.overrides import Machines, Overrides, load
from xpc.compiler.importing.text.entries import Entries, Entry, Lookups, boolean, integer, is_stated, number, text
from xpc.compiler.importing.text.values import DTYPES
from xpc.compiler.importing.torchtune import data as torchtune_data
from xpc.compiler.importing.torchtune.adapter import adapter
from xpc.compiler.importing.torchtune.keys import (
    COSINE,
    FOLDERS,
    KEYS,
    LOSSES,
    NO_TRAINING,
    PAIRS,
    PUBLISHERS,
    RECIPES,
    VISION,
    at,
    component,
)
from xpc.compiler.importing.trl import data as corpus
from xpc.compiler.importing.trl import reader as trlyaml
from xpc.compiler.importing.trl.switches import follow
from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.stacks import DEFAULT
from xpc.grammar.tree import quoted

NOT_SET = "not set: torchtune's default"


def torchtune(entries: Entries, file: str, overrides: Overrides) -> Draft:
    """Convert a torchtune YAML file to a draft of the spec."""
    entries = Lookups({key: _interpolated(one, entries) for key, one in entries.items()}, set())
    loss = component(at(entries, "loss")).rpartition(".")[2]
    method = overrides.method or ("dpo" if loss in PAIRS else "sft")
    draft = Draft(load(overrides.target or DEFAULT), method, overrides.stem, seen=entries.seen)
    trlyaml.given(draft, overrides)
    refused = _refused(entries)
    if refused is not None:
        draft.error(*refused)
        for other in entries.values():
            corpus.everything(draft, other, "the recipe is refused") if other is not refused[0] else None
        return draft
    found = Machines()
    alone = any(word in file for word in ("single_device", "low_memory"))
    found.each = 1 if alone else None
    device = entries.get("device")
    if device is not None:
        found.cpu = text(device) == "cpu"
        draft.note(device, "the hardware is `hardware`")
    _model(draft, entries, overrides)
    for key, path in KEYS.column("setting").items():
        one = at(entries, key)
        if one is not None and not key.startswith(("model.", "dataset.", "loss.")) and not KEYS[key].values:
            draft.setting(path, one)
    _run(draft, entries)
    _optimizer(draft, entries)
    _loss(draft, entries, loss)
    adapter(draft, entries, alone)
    _memory(draft, entries, alone)
    trlyaml.shard(draft, {}, overrides, found)
    _tracker(draft, entries)
    torchtune_data.data(draft, entries)
    draft.default("batch.mean", "global_tokens", NOT_SET)
    families.nearest(draft, "torchtune")
    follow(draft)
    draft.put("method", method)
    trlyaml.finish(draft, overrides, found)
    for key, why in KEYS.column("irrelevant").items():
        irrelevant = at(entries, key)
        if irrelevant is not None:
            corpus.everything(draft, irrelevant, why)
    known = {part for key in (*KEYS, *entries.seen) for part in key.split(".")}
    impossible = {key.rpartition(".")[2]: why for key, why in KEYS.column("refused").items() if key not in RECIPES}
    draft.settle(entries, sorted(known), impossible)
    trlyaml.settle_files(draft, overrides)
    return draft


def _interpolated(entry: Entry, entries: Entries) -> Entry:
    """Replace references in a value, such as `${output_dir}/logs`, by the values of the keys that they name."""
    if isinstance(entry.value, dict):
        return _with(entry, {key: _interpolated(one, entries) for key, one in entry.mapping.items()})
    if isinstance(entry.value, list):
        return _with(entry, [_interpolated(one, entries) for one in entry.value])
    if not isinstance(entry.value, str) or "${" not in entry.value:
        return entry

    def value(name: re.Match[str]) -> str:
        one = at(entries, name[1])
        replacement = text(one)
        return name[0] if replacement is None or "${" in replacement else replacement

    return _with(entry, re.sub(r"\$\{([\w.]+)\}", value, entry.value))


def _with(entry: Entry, value: object) -> Entry:
    return Entry(entry.key, value, entry.file, entry.line)


def _refused(entries: Entries) -> tuple[Entry, str] | None:
    """Return the first key that prevents the import of the file, and the reason; None if there is none."""
    for key in RECIPES:
        one = entries.get(key)
        if is_stated(one) and "optimizer" in entries:
            return one, KEYS[key].refused
    if "optimizer" not in entries:
        return next(iter(entries.values())), NO_TRAINING
    for key in ("model", "dataset", "datasets"):
        one = entries.get(key)
        parts = [] if one is None else one.items
        if any("vision" in component(part) or "multimodal" in component(part) for part in parts):
            return parts[0].mapping["_component_"], VISION
        if key == "datasets" and one is not None:
            return one, "only torchtune's recipe for images reads it"
    return None


def _model(draft: Draft, entries: Entries, overrides: Overrides) -> None:
    """Set the model. A checkpoint folder with a name that `tune download` writes, such as `Qwen2.5-3B-Instruct`,
    becomes the hub repository of this name; otherwise the model is the folder.
    """
    made, folder = at(entries, "model._component_"), at(entries, "checkpointer.checkpoint_dir")
    parts = component(entries.get("model")).split(".")
    family = parts[2] if parts[:2] == ["torchtune", "models"] and len(parts) > 3 else ""
    if made is not None and not family:
        draft.error(made, "torchtune.models has no such model")
    elif made is not None:
        draft.mark(made, "mapped", "train")
    path = (text(folder) or "").rstrip("/").removesuffix("/original") if folder is not None else ""
    name = path.rpartition("/")[2]
    if folder is None or not path:
        draft.warn(
            folder, "the file names no folder of weights", "`--model` names the model"
        ) if not draft.model else None
        return
    if draft.model:
        draft.note(folder, "`--model` names another")
        return
    publisher = next((who for start, who in PUBLISHERS.items() if family.startswith(start)), None)
    # torchtune's files write `Qwen2_5-3B-Instruct` for Qwen2.5
    name = re.sub(r"(?<=\d)_(?=\d)", ".", name)
    if overrides.read(f"{path}/config.json") is None and publisher is not None and re.fullmatch(FOLDERS, name):
        draft.model = f"{publisher}/{name}"
        draft.mark(folder, "mapped", f"train {draft.model}", f"`tune download {draft.model}` writes this folder")
    else:
        draft.model = quoted(path)
        draft.mark(folder, "mapped", f"train {draft.model}")


def _run(draft: Draft, entries: Entries) -> None:
    """Set the number of steps, the seed and the precision, and import `resume_from_checkpoint`."""
    most, epochs, seed, dtype = (entries.get(key) for key in ("max_steps_per_epoch", "epochs", "seed", "dtype"))
    steps = integer(most)
    if most is not None and most.empty:
        draft.note(most, "null: an epoch uses all rows")
    elif most is not None and steps is None:
        draft.error(most, "the value must be a whole number")
    elif most is not None and steps is not None:
        times = integer(epochs) or 1
        draft.mark(draft.take("train.epochs"), "mapped", f"train.steps = {steps * times}")
        draft.put("train.steps", steps * times, most)
        draft.differs(
            "max_steps_per_epoch",
            f"torchtune ends an epoch after {steps} steps or at the last row, and shuffles again for the next; the "
            "spec counts the steps of all epochs",
            most,
        )
    if seed is not None and seed.empty:
        draft.note(seed, "null: torchtune chooses a new seed at each start; a bundle has a fixed seed")
    elif seed is not None:
        draft.setting("seed", seed)
    word = DTYPES.get((text(dtype) or "") if dtype is not None else "bf16")
    if dtype is not None and word not in ("bf16", "fp32"):
        draft.error(dtype, "torchtune trains only in bf16 and fp32", "write `dtype: bf16`")
    elif dtype is not None and word is not None:
        draft.put("precision", word, dtype)
        draft.put("model.dtype", word, dtype)
    resume = entries.get("resume_from_checkpoint")
    if resume is not None and resume.off:
        draft.note(resume, "the file names no checkpoint; a bundle resumes from its own checkpoints")


def _optimizer(draft: Draft, entries: Entries) -> None:
    """Set the optimizer with the defaults of its class, gradient clipping, and the learning-rate schedule."""
    made = at(entries, "optimizer._component_")
    name = KEYS["optimizer._component_"].values.get(component(entries.get("optimizer")), "")
    fused, betas, clip = (at(entries, key) for key in ("optimizer.fused", "optimizer.betas", "clip_grad_norm"))
    if made is not None and not name:
        draft.error(made, "xpc has no such optimizer", "`xpc explain optimizer` lists them")
    elif made is not None:
        name = "adamw_fused" if name == "adamw_torch" and boolean(fused) else name
        draft.put("optimizer", name, made)
    if fused is not None:
        draft.mark(fused, "mapped", f"optimizer {name}") if boolean(fused) else draft.note(fused, "it is off")
    if betas is not None:
        values = [number(one) for one in betas.items]
        if len(values) == 2 and None not in values:
            draft.put("optimizer.betas", tuple(values), betas)
        else:
            draft.error(betas, "the value must be two numbers")
    # torch and bitsandbytes have the default 1e-3
    draft.default("optimizer.lr", 1e-3, NOT_SET)
    draft.default("optimizer.weight_decay", 0.0 if name == "sgd" else 0.01, NOT_SET)
    most = number(clip)
    if clip is not None and clip.empty:
        draft.put("optimizer.clip", 0.0, clip, "null: nothing is clipped")
    elif clip is not None and text(clip) == "inf":
        draft.put("optimizer.clip", 0.0, clip, "nothing is clipped")
    elif clip is not None and most is None:
        draft.error(clip, "the value must be a number")
    elif clip is not None:
        draft.put("optimizer.clip", most, clip)
    draft.default("optimizer.clip", 0.0, NOT_SET)
    within = entries.get("optimizer_in_bwd")
    if within is not None:
        draft.note(
            within, "it is off" if within.off else "an optimizer step during the backward pass gives the same weights"
        )
    _schedule(draft, entries.get("lr_scheduler"))


def _schedule(draft: Draft, entry: Entry | None) -> None:
    made = None if entry is None else entry.mapping.get("_component_")
    if not is_stated(entry) or made is None:
        draft.put("schedule", "constant", None, "not set: the learning rate is constant")
        return
    if text(made) not in COSINE:
        draft.error(made, "xpc has no such schedule", "`xpc explain schedule` lists them")
        return
    draft.put("schedule", "cosine", made)
    warm, cycles = entry.mapping.get("num_warmup_steps"), entry.mapping.get("num_cycles")
    steps = integer(warm)
    if warm is not None and steps is not None:
        draft.put("schedule.warmup", Amount("count", steps), warm)
    elif warm is not None:
        draft.error(warm, "the value must be a whole number")
    if cycles is not None and number(cycles) == 0.5:
        draft.note(cycles, "half a cycle: the learning rate falls to zero and does not rise again")
    elif cycles is not None:
        draft.error(cycles, "xpc has no such schedule")


def _loss(draft: Draft, entries: Entries, loss: str) -> None:
    made = at(entries, "loss._component_")
    if made is not None and loss in PAIRS:
        draft.mark(made, "mapped", "method dpo")
        if PAIRS[loss] != "sigmoid":
            draft.put("method.loss", (Weighted(PAIRS[loss]),), made)
        draft.default("method.beta", 0.1, NOT_SET)
    elif made is not None and loss in LOSSES:
        draft.mark(made, "mapped", "method sft")
    elif made is not None:
        draft.error(made, "xpc has no such loss")
    for key in ("beta", "gamma", "label_smoothing"):
        one = at(entries, f"loss.{key}")
        if one is not None:
            draft.settings.pop("method.beta", None) if key != "label_smoothing" else None
            draft.setting(KEYS[f"loss.{key}"].setting, one)
    reference, own = at(entries, "ref_checkpointer.checkpoint_dir"), at(entries, "checkpointer.checkpoint_dir")
    if reference is not None and own is not None and reference.value == own.value:
        corpus.everything(draft, entries["ref_checkpointer"], "the reference model is the initial model")
    elif reference is not None:
        draft.error(reference, KEYS["ref_checkpointer"].refused)
        corpus.everything(draft, entries["ref_checkpointer"], "the reference is refused")


def _memory(draft: Draft, entries: Entries, alone: bool) -> None:
    """Set activation checkpointing, offloading to host memory, the sharding strategy and compilation."""
    draft.default("memory.checkpointing", False, NOT_SET)
    away, cpu, split = (
        entries.get(key) for key in ("enable_activation_offloading", "fsdp_cpu_offload", "tensor_parallel_dim")
    )
    if draft.on(away):
        draft.note(away, "activations are recomputed")
        draft.warn(
            away, "a bundle recomputes activations instead of offloading them: this changes memory, not the loss"
        )
    draft.default("strategy", "ddp" if alone else "fsdp", "torchtune's distributed recipes shard with FSDP2")
    if cpu is not None and not cpu.off and not alone:
        draft.put("strategy.offload", "cpu", cpu)
    elif cpu is not None:
        draft.note(cpu, "it is off" if cpu.off else "one device shards nothing")
    if split is not None and integer(split) in (None, 1):
        draft.note(split, "nothing is split")
    compiled = entries.get("compile")
    if draft.on(compiled):
        draft.put("model.compile", True, compiled, "torchtune compiles each layer")


def _tracker(draft: Draft, entries: Entries) -> None:
    made, every = at(entries, "metric_logger._component_"), entries.get("log_every_n_steps")
    last = component(entries.get("metric_logger")).rpartition(".")[2]
    loggers = KEYS["metric_logger._component_"].values
    if made is not None and last in loggers:
        draft.put("track", (loggers[last],), made)
    elif made is not None:
        draft.error(made, "xpc supports the trackers wandb, trackio, tensorboard, mlflow, swanlab and clearml")
    for key, path in (("project", "track.project"), ("name", "track.name")):
        one = at(entries, f"metric_logger.{key}")
        draft.setting(path, one)
    if every is not None and every.empty:
        draft.note(every, NULL)
    elif every is not None and integer(every):
        draft.put("track.every", Amount("count", integer(every) or 1), every)
    elif every is not None:
        draft.error(every, "the value must be a whole number")
    draft.default("track.every", Amount("count", 1), NOT_SET)
