"""Lower a spec to trainer arguments. The result contains every argument that can change the result of the run, under
the argument's name on the target.

All arguments begin with the values of the target's table of defaults. Then each setting of the spec replaces the values
of the arguments that the table of settings lists for it.
"""

from __future__ import annotations

import json

from xpc.compiler.language.kinds import Amount
from xpc.compiler.language.optimizers import METRIC_SCHEDULES
from xpc.compiler.lower.method import method_arguments
from xpc.compiler.lower.optimizer import maximized, optimizer, schedule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Json

COMPILES = ("torch_compile", "torch_compile_backend", "torch_compile_mode")


def arguments(spec: Spec) -> dict[str, Json]:
    """The arguments of the method's configuration class (`spec.config`, such as SFTConfig), sorted by their names.
    Raises LookupError for an argument that the class does not have, which is a bug of xpc.
    """
    out = spec.stack.base_arguments(spec.config)
    decided: dict[str, Json] = {}
    for part in (_length, _batch, optimizer, schedule, _precision, _memory, _when, _data, _machine):
        decided.update(part(spec))
    known = spec.fields()
    if spec.text("method") != "sft" or spec.get("method.loss") is not None:
        # Drop the arguments of SFTConfig that the method's own configuration class lacks or deprecates. If a setting
        # needs such an argument, either a rule refuses the setting, or the runtime does the setting's work on the rows.
        supervised = spec.stack.fields()
        taken = {name for name, field in known.items() if not field.deprecated}
        decided = {name: value for name, value in decided.items() if name in taken or name not in supervised}
        decided.update(method_arguments(spec))
    decided.update(_extra(spec))
    unknown = sorted(set(decided) - set(known))
    if unknown:
        raise LookupError(f"{spec.stack.name} has no argument {', '.join(unknown)}")
    out.update(decided)
    return dict(sorted(out.items()))


def _extra(spec: Spec) -> dict[str, Json]:
    """The arguments in `extra trl`. If the spec states `optim_args` there, its text is joined with the `optim_args`
    that the optimizer's settings give. Strings of JSON are parsed.

    If the type of an argument is float, a whole number becomes a float: transformers 5 checks the types of values that
    it passes on to the model's configuration.
    """
    out: dict[str, Json] = {}
    known = spec.fields() if spec.extra.get("trl") else {}
    for name, value in spec.extra.get("trl", {}).items():
        if name != "optim_args":
            plain, kinds = _plain(value.value), known[name].type.split(" | ") if name in known else []
            if isinstance(plain, int) and not isinstance(plain, bool) and "float" in kinds and "int" not in kinds:
                plain = float(plain)
            out[name] = plain
    config = out.get("accelerator_config")
    # Each process reads the stream itself. With `dispatch_batches`, one process would read for all, and accelerate
    # would join batches whose rows differ in length. trl 1.16 also turns `dispatch_batches` off.
    streamed = {"dispatch_batches": False} if spec.flag("data.streaming") else {}
    if isinstance(config, str) or streamed:
        base = spec.stack.base_argument("accelerator_config", spec.config)
        assert isinstance(base, dict)
        written = json.loads(config) if isinstance(config, str) else {}
        out["accelerator_config"] = {**base, **written, **streamed}
    if spec.flag("model.compile") or any(out.get(name) is not None for name in COMPILES):
        out.update(_compiled(out))
    return {**out, **best(spec)}


def _compiled(out: dict[str, Json]) -> dict[str, Json]:
    """The arguments for torch.compile, completed as transformers would complete them: a mode or a backend turns
    compilation on, and the default backend is inductor.
    """
    if out.get("torch_compile") is False:
        return {}
    return {"torch_compile": True, "torch_compile_backend": out.get("torch_compile_backend") or "inductor"}


def best(spec: Spec) -> dict[str, Json]:
    """The arguments for the metric that decides which checkpoint is best: the name of the metric, and whether a higher
    value of it is better.
    """
    metric = spec.extra_value("trl", "metric_for_best_model")
    needed = spec.extra_value("trl", "load_best_model_at_end") is True or spec.text("schedule") in METRIC_SCHEDULES
    if metric is None and not needed and spec.get("eval.patience") is None:
        return {}
    return {"metric_for_best_model": _plain(metric) or "loss", "greater_is_better": maximized(spec)}


def _plain(value: object) -> Json:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    assert value is None or isinstance(value, bool | int | float | str)
    return value


def _length(spec: Spec) -> dict[str, Json]:
    steps = spec.get("train.steps")
    epochs = spec.real("train.epochs") if steps is None else 3.0
    return {"max_steps": -1 if steps is None else steps, "num_train_epochs": epochs, "output_dir": spec.text("save")}


def _batch(spec: Spec) -> dict[str, Json]:
    packing = spec.flag("batch.packing")
    uncut = spec.flag("batch.padding_free") and not packing and spec.stack.facts.padding_free_needs_no_max_length
    out: dict[str, Json] = {
        "per_device_train_batch_size": spec.integer("batch.micro"),
        "per_device_eval_batch_size": spec.integer("eval.micro"),
        "gradient_accumulation_steps": spec.integer("batch.accum"),
        # Truncation could cut off image tokens. Therefore the trainer does not truncate rows with images; the runtime
        # checks the lengths of these rows instead.
        spec.stack.arguments["seq"]: None if uncut or spec.reads_images else spec.integer("batch.seq"),
        "packing": packing,
        "eval_packing": spec.flag("batch.packing.eval"),
        "padding_free": spec.flag("batch.padding_free"),
    }
    if spec.context_parallel > 1:
        out["pad_to_multiple_of"] = spec.shared_multiple
    if packing and "packing_strategy" in spec.fields():
        out["packing_strategy"] = spec.text("batch.packing.strategy")
    mean = spec.get("batch.mean")
    if mean is not None:
        out["average_tokens_across_devices"] = mean == "global_tokens" and spec.hardware.world > 1
    return out


def _precision(spec: Spec) -> dict[str, Json]:
    name = spec.text("precision")
    out: dict[str, Json] = {"bf16": name == "bf16", "fp16": name == "fp16"}
    # On a CPU, `tf32` is not set, because even `tf32=False` makes torch read a setting of CUDA.
    out["tf32"] = spec.flag("precision.tf32") or (None if spec.on_cpu else False)
    return out


def _memory(spec: Spec) -> dict[str, Json]:
    on = spec.flag("memory.checkpointing")
    how: dict[str, Json] = {"use_reentrant": spec.flag("memory.checkpointing.reentrant")}
    if spec.flag("memory.checkpointing.selective"):
        how["selective"] = True
    out: dict[str, Json] = {
        spec.stack.arguments["checkpointing"]: on,
        spec.stack.arguments["checkpointing_kwargs"]: how if on else None,
        "activation_offloading": spec.flag("memory.offload_activations"),
    }
    if spec.stack.facts.liger == "argument":
        out["use_liger_kernel"] = spec.flag("memory.liger")
    return out


def _strategy_and_steps(amount: Amount, steps: Json) -> tuple[str, Json]:
    """Convert an interval to a pair: transformers' strategy, and a number of steps. Examples are (`steps`, 100) and
    (`steps`, 0.05), where 0.05 is a share of the run. With the strategies `epoch` and `no`, transformers ignores the
    number.
    """
    if amount.unit == "never":
        return "no", steps
    return ("epoch", steps) if amount.unit == "epoch" else ("steps", amount.value)


def _when(spec: Spec) -> dict[str, Json]:
    evaluated, saved = (spec.stack.base_argument(name, spec.config) for name in ("eval_steps", "save_steps"))
    eval_name, eval_steps = _strategy_and_steps(spec.amount("eval.every"), evaluated)
    save_name, save_steps = _strategy_and_steps(spec.amount("save.every"), saved)
    log_name, log_steps = _strategy_and_steps(spec.amount("track.every"), 10)
    out: dict[str, Json] = {
        "eval_strategy": eval_name,
        "eval_steps": eval_steps,
        "save_strategy": save_name,
        "save_steps": save_steps,
        "save_total_limit": spec.get("save.keep"),
        "save_only_model": not spec.flag("save.full_state"),
        "logging_strategy": log_name,
        "logging_steps": log_steps,
        "report_to": [one for one in spec.names("track") if one != "none"],
        "run_name": spec.get("track.name") or spec.name,
        "seed": spec.integer("seed"),
    }
    if spec.flag("save.hub"):
        out |= _hub(spec)
    project = spec.get("track.project")
    if project is not None and "project" in spec.fields():
        out["project"] = project
    return out


def _hub(spec: Spec) -> dict[str, Json]:
    """The arguments for pushing to the hub. Some targets have no argument for the branch. For such a target, the branch
    is in the section `hub` of trainer_args.json, which the runtime reads.
    """
    out: dict[str, Json] = {
        "push_to_hub": True,
        "hub_model_id": spec.text("save.hub.name"),
        "hub_strategy": spec.text("save.hub.strategy"),
        "hub_private_repo": spec.get("save.hub.private"),
    }
    if "hub_revision" in spec.fields():
        out["hub_revision"] = spec.get("save.hub.revision")
    return out


def _data(spec: Spec) -> dict[str, Json]:
    only = spec.get("method.completion_only")
    completions = any(source.shape in ("prompt_completion", "tokens") for source in spec.data)
    out: dict[str, Json] = {
        "completion_only_loss": completions if only is None else only,
        "dataset_num_proc": spec.get("data.workers"),
        "eos_token": spec.get("model.eos"),
    }
    fields = spec.fields()
    if "assistant_only_loss" in fields:
        out["assistant_only_loss"] = spec.flag("method.assistant_only")
    sampled = not spec.online and not spec.flag("data.streaming")
    if "train_sampling_strategy" in fields and not spec.flag("data.shuffle") and sampled:
        out["train_sampling_strategy"] = "sequential"
    return out


def _machine(spec: Spec) -> dict[str, Json]:
    out: dict[str, Json] = {"ddp_timeout": spec.integer("launch.nccl_timeout")}
    if spec.zero_stage:
        out["deepspeed"] = "deepspeed.json"
    if spec.text("strategy") == "ddp" and spec.hardware.world > 1:
        # Without `ddp_find_unused_parameters`, the trainer makes DDP search for unused parameters in every step, except
        # with gradient checkpointing. Only models with experts have unused parameters: those of an expert that gets no
        # token of the batch. Without the search, the other processes then wait for their gradients forever. Reentrant
        # checkpointing cannot be combined with the search (XP420).
        facts = spec.model.facts
        sparse = facts is None or facts.experts > 0
        reentrant = spec.flag("memory.checkpointing") and spec.flag("memory.checkpointing.reentrant")
        out["ddp_find_unused_parameters"] = sparse and not reentrant
    if spec.on_cpu:
        # A DeepSpeed run leaves use_cpu off, because with it, accelerate silently replaces DeepSpeed by DDP. On a
        # machine without a GPU, accelerate uses the CPU even without use_cpu.
        out["use_cpu"] = not spec.zero_stage
        out["dataloader_pin_memory"] = False
        out["ddp_backend"] = "gloo" if spec.hardware.world > 1 and not spec.zero_stage else None
    return out
