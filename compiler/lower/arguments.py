"""Spec to trainer arguments: every argument that can change numbers, stated by the target's names.

The base is the target's own table of effective defaults; each setting then decides the arguments of its schema row.
"""

from __future__ import annotations

from xpc.compiler.kinds import Amount
from xpc.compiler.spec import Spec
from xpc.compiler.targets import Json

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def arguments(spec: Spec) -> dict[str, Json]:
    """The arguments of `trl.SFTConfig`, sorted by name."""
    out = spec.target.base_arguments()
    decided: dict[str, Json] = {}
    for part in (_length, _batch, _optimizer, _schedule, _precision, _memory, _when, _data, _machine):
        decided.update(part(spec))
    for name, value in spec.extra.get("trl", {}).items():
        decided[name] = _plain(value.value)
    known = spec.target.fields()
    unknown = sorted(set(decided) - set(known))
    if unknown:
        raise LookupError(f"{spec.target.name} has no argument {', '.join(unknown)}")
    out.update(decided)
    return dict(sorted(out.items()))


def _plain(value: object) -> Json:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    assert value is None or isinstance(value, bool | int | float | str)
    return value


def _named(spec: Spec, meaning: str) -> str:
    return spec.target.arguments[meaning]


def _length(spec: Spec) -> dict[str, Json]:
    steps = spec.get("train.steps")
    if isinstance(steps, int):
        return {"max_steps": steps, "num_train_epochs": 3.0, "output_dir": spec.text("save")}
    return {"max_steps": -1, "num_train_epochs": spec.real("train.epochs"), "output_dir": spec.text("save")}


def _batch(spec: Spec) -> dict[str, Json]:
    packing = spec.flag("batch.packing")
    uncut = spec.flag("batch.padding_free") and not packing and spec.target.facts["padding_free_needs_no_max_length"]
    out: dict[str, Json] = {
        "per_device_train_batch_size": spec.integer("batch.micro"),
        "per_device_eval_batch_size": spec.integer("eval.micro"),
        "gradient_accumulation_steps": spec.integer("batch.accum"),
        _named(spec, "seq"): None if uncut else spec.integer("batch.seq"),
        "packing": packing,
        "eval_packing": spec.flag("batch.packing.eval"),
        "padding_free": spec.flag("batch.padding_free"),
    }
    if packing and "packing_strategy" in spec.target.fields():
        out["packing_strategy"] = spec.text("batch.packing.strategy")
    mean = spec.get("batch.mean")
    if mean is not None:
        out["average_tokens_across_devices"] = mean == "global_tokens" and spec.hardware.world > 1
    return out


def _optimizer(spec: Spec) -> dict[str, Json]:
    beta1, beta2 = spec.reals("optimizer.betas")
    return {
        "optim": spec.target.optimizers[spec.text("optimizer")],
        "learning_rate": spec.real("optimizer.lr"),
        "adam_beta1": beta1,
        "adam_beta2": beta2,
        "adam_epsilon": spec.real("optimizer.eps"),
        "weight_decay": spec.real("optimizer.weight_decay"),
        "max_grad_norm": spec.real("optimizer.clip"),
    }


def _schedule(spec: Spec) -> dict[str, Json]:
    name, kwargs = spec.text("schedule"), {}
    floor = spec.get("schedule.min_lr")
    if name == "cosine" and isinstance(floor, Amount):
        name = "cosine_with_min_lr"
        kwargs = {"min_lr_rate" if floor.unit == "share" else "min_lr": floor.value}
    elif name == "wsd":
        name, kwargs = "warmup_stable_decay", {"num_decay_steps": _decay_steps(spec)}
        if isinstance(floor, Amount):
            lr = spec.real("optimizer.lr")
            kwargs["min_lr_ratio"] = floor.value if floor.unit == "share" else floor.value / lr
    elif name == "polynomial":
        # The library's own values, stated; it refuses an end that is not below the peak.
        kwargs = {"lr_end": 1e-7 if spec.real("optimizer.lr") > 1e-7 else 0.0, "power": 1.0}
    elif name == "constant" and spec.amount("schedule.warmup").value:
        name = "constant_with_warmup"
    out: dict[str, Json] = {"lr_scheduler_type": name}
    fallback = spec.target.base_arguments()["lr_scheduler_kwargs"]
    out["lr_scheduler_kwargs"] = dict(kwargs) if kwargs else fallback
    warmup = spec.amount("schedule.warmup")
    steps, ratio = _named(spec, "warmup_steps"), _named(spec, "warmup_ratio")
    out[steps] = 0
    if ratio != steps:
        out[ratio] = 0.0
    out[ratio if warmup.unit == "share" and warmup.value else steps] = warmup.value
    return out


def _decay_steps(spec: Spec) -> int:
    decay = spec.amount("schedule.decay")
    return int(decay.value * spec.integer("train.steps")) if decay.unit == "share" else int(decay.value)


def _precision(spec: Spec) -> dict[str, Json]:
    name = spec.text("precision")
    out: dict[str, Json] = {"bf16": name == "bf16", "fp16": name == "fp16"}
    # On the CPU even `false` asks torch for a CUDA setting, so nothing is said there.
    out["tf32"] = None if spec.on_cpu else spec.flag("precision.tf32")
    return out


def _memory(spec: Spec) -> dict[str, Json]:
    on = spec.flag("memory.checkpointing")
    out: dict[str, Json] = {
        _named(spec, "checkpointing"): on,
        _named(spec, "checkpointing_kwargs"): (
            {"use_reentrant": spec.flag("memory.checkpointing.reentrant")} if on else None
        ),
        "activation_offloading": spec.flag("memory.offload_activations"),
    }
    if spec.target.facts["liger"] == "argument":
        out["use_liger_kernel"] = spec.flag("memory.liger")
    return out


def _strategy_and_steps(amount: Amount, steps: Json) -> tuple[str, Json]:
    """The interval's name and number: (`steps`, 100), (`steps`, 0.05), (`epoch`, unused), (`no`, unused)."""
    if amount.unit == "never":
        return "no", steps
    return ("epoch", steps) if amount.unit == "epoch" else ("steps", amount.value)


def _when(spec: Spec) -> dict[str, Json]:
    base = spec.target.base_arguments()
    eval_name, eval_steps = _strategy_and_steps(spec.amount("eval.every"), base["eval_steps"])
    save_name, save_steps = _strategy_and_steps(spec.amount("save.every"), base["save_steps"])
    log_name, log_steps = _strategy_and_steps(spec.amount("track.every"), 10)
    trackers = spec.get("track")
    assert isinstance(trackers, tuple)
    keep, name = spec.get("save.keep"), spec.get("track.name")
    out: dict[str, Json] = {
        "eval_strategy": eval_name,
        "eval_steps": eval_steps,
        "save_strategy": save_name,
        "save_steps": save_steps,
        "save_total_limit": keep if isinstance(keep, int) else None,
        "save_only_model": not spec.flag("save.full_state"),
        "logging_strategy": log_name,
        "logging_steps": log_steps,
        "report_to": [one for one in trackers if one != "none"],
        "run_name": name if isinstance(name, str) else spec.name,
        "seed": spec.integer("seed"),
    }
    project = spec.get("track.project")
    if isinstance(project, str) and "project" in spec.target.fields():
        out["project"] = project
    return out


def _data(spec: Spec) -> dict[str, Json]:
    only = spec.get("method.completion_only")
    workers, eos = spec.get("data.workers"), spec.get("model.eos")
    completions = all(source.shape == "prompt_completion" for source in spec.data)
    out: dict[str, Json] = {
        "completion_only_loss": only if isinstance(only, bool) else completions,
        "dataset_num_proc": workers if isinstance(workers, int) else None,
        "eos_token": eos if isinstance(eos, str) else None,
    }
    fields = spec.target.fields()
    if "assistant_only_loss" in fields:
        out["assistant_only_loss"] = spec.flag("method.assistant_only")
    if "train_sampling_strategy" in fields and not spec.flag("data.shuffle"):
        out["train_sampling_strategy"] = "sequential"
    return out


def _machine(spec: Spec) -> dict[str, Json]:
    out: dict[str, Json] = {"ddp_timeout": spec.integer("launch.nccl_timeout")}
    if spec.zero_stage:
        out["deepspeed"] = "deepspeed.json"
    if spec.text("strategy") == "ddp" and spec.hardware.world > 1:
        # Unset, the Trainer searches the graph for unused parameters in every step unless it checkpoints. Experts that
        # no token of a batch was sent to are the one kind that a language model has.
        facts = spec.model.facts
        sparse = facts is None or facts.experts > 0
        out["ddp_find_unused_parameters"] = sparse and not spec.flag("memory.checkpointing")
    if spec.on_cpu:
        # use_cpu makes accelerate drop DeepSpeed for plain DDP without a word; the CPU is found by there being no GPU.
        out["use_cpu"] = not spec.zero_stage
        out["dataloader_pin_memory"] = False
        out["ddp_backend"] = "gloo" if spec.hardware.world > 1 and not spec.zero_stage else None
    return out
