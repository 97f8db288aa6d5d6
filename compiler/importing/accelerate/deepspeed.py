"""Import DeepSpeed's JSON: ZeRO with its buckets and offloading, and keys such as the learning rate, which are also
arguments of the trainer. For the value "auto", DeepSpeed uses the trainer's argument.
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.importing.draft import NULL, Draft
from xpc.compiler.importing.keys import load
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, integer, number, plain, shown, text
from xpc.compiler.language import extras
from xpc.compiler.language.kinds import Amount
from xpc.compiler.lower.accelerate import ATTENTION

STAGES = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
KEYS = load("accelerate/deepspeed.toml")
BLOCKS = ("zero_optimization", "bf16", "fp16", "optimizer", "scheduler", "activation_checkpointing",
          "zero_allow_untested_optimizer", "train_batch_size", "train_micro_batch_size_per_gpu",
          "steps_per_print", "wall_clock_breakdown")  # fmt: skip
"""Keys of a DeepSpeed file that are imported by functions of this module, and not by a row of the key table
deepspeed.toml.
"""
PASSED_ON = {"gradient_accumulation_steps", "gradient_clipping"}
"""Keys of a DeepSpeed file that accelerate also reads in the block `deepspeed_config` of its YAML."""
IGNORED = {*(key.rpartition(".")[2] for key in KEYS if key.startswith("zero_optimization.")),
           *(key.partition(".")[0] for key in KEYS), *BLOCKS} - PASSED_ON  # fmt: skip
"""Keys of a DeepSpeed file that accelerate ignores in the block `deepspeed_config` of its YAML."""
REPORTING = ("tensorboard", "csv_monitor", "wandb", "comet", "monitor_config", "flops_profiler", "comms_logger",
             "seq_parallel_communication_data_type")  # fmt: skip
"""Keys that do not affect the training. Most are about logging and profiling; DeepSpeed reads
`seq_parallel_communication_data_type` only for its own sequence parallelism.
"""
AUTO = "auto: the trainer's argument decides"


def zero(draft: Draft, table: Entries, prefix: str = "") -> None:
    """Import a DeepSpeed configuration: a complete file, or a mapping inside another file. `prefix` is what the names
    of the mapping's keys begin with, such as `deepspeed.`; it is empty for a complete file.
    """
    for name, path in KEYS.column("setting").items():
        one = table.get(name)
        if one is not None and one.value == "auto":
            draft.note(one, AUTO)
        elif one is not None:
            draft.setting(path, one, weak=True)
    _optimizer(draft, table.get("optimizer"))
    _scheduler(draft, table.get("scheduler"))
    precision(draft, table)
    stage(draft, table.get("zero_optimization"))
    for name, one in table.items():
        for leaf in _leaves(one):
            if name in REPORTING:
                draft.note(leaf, "reporting only")
            elif name == "activation_checkpointing":
                draft.note(leaf, "no effect: transformers recomputes with torch, not with DeepSpeed")
            elif name == "elasticity" and not _enabled(one):
                draft.note(leaf, "it is off")
            elif name == "elasticity":
                draft.error(leaf, "a run has a fixed number of processes and a fixed batch size", "leave it out")
            else:
                _rest(draft, leaf, leaf.key.removeprefix(prefix))


def _enabled(block: Entry) -> bool:
    """Whether a block such as `elasticity` is on. For DeepSpeed, a block without `enabled: true` is off."""
    on = block.mapping.get("enabled")
    return boolean(on) is True


def _leaves(entry: Entry) -> Iterator[Entry]:
    if entry.mapping:
        for one in entry.mapping.values():
            yield from _leaves(one)
    else:
        yield entry


def _rest(draft: Draft, entry: Entry, key: str) -> None:
    """Handle a DeepSpeed key that has no setting: keep it under `extra` with its dotted name, or report why it has no
    effect.
    """
    if draft.handled(entry):
        return
    if entry.value == "auto":
        draft.note(entry, AUTO)
        return
    head, _, last = key.rpartition(".")
    # replace deprecated names, which DeepSpeed still accepts
    older = KEYS.block("zero_optimization").column("renamed")
    name = f"{head}.{older[last]}" if last in older else key
    why = extras.removed(draft.stack, "deepspeed", name)
    stage3 = last.startswith("stage3_") or last in older
    strategy = draft.value("strategy")
    if why is not None:
        draft.note(entry, why)
        if not entry.off:
            draft.warn(entry, why)
    elif stage3 and strategy not in ("", "zero3"):
        draft.note(entry, f"{strategy} does not read it")
    elif entry.value is None:
        draft.note(entry, NULL)
    elif key in ("steps_per_print", "wall_clock_breakdown", "zero_allow_untested_optimizer", "_comment") or (
        entry.value in ({}, [])
    ):
        draft.note(entry, "console output only" if "steps" in key else "a bundle sets it if its optimizer needs it"
                   if "untested" in key else "it changes nothing")  # fmt: skip
        if key == "wall_clock_breakdown" and not entry.off:
            draft.keep_in_extra("deepspeed", key, entry)
    elif name.endswith("stage3_gather_16bit_weights_on_model_save") and boolean(entry):
        draft.note(entry, "a bundle has this value anyway")
    elif not draft.keep_in_extra("deepspeed", name, entry):
        why = f"DeepSpeed in {draft.stack.name} has no such key, or a setting of the spec decides its value"
        draft.error(draft.on(entry), why)


def precision(draft: Draft, table: Entries) -> None:
    """Import `bf16` and `fp16`. It is an error if their `enabled` contradicts the trainer's precision."""
    decided = draft.settings.get("precision")
    for name in ("bf16", "fp16"):
        block = table.get(name)
        if block is None:
            continue
        on = block.mapping.get("enabled")
        for inner, one in block.mapping.items():
            if inner == "enabled":
                continue
            if decided is not None and decided.text != name and (on is None or on.value == "auto" or on.off):
                draft.note(one, f"{name} is not on")
            elif one.value == "auto" or (inner == "auto_cast" and one.off):
                draft.note(one, AUTO)
            elif not draft.has("precision") and (on is None or on.off or on.value == "auto"):
                draft.note(one, f"{name} is not on")
        if on is None:
            continue
        if on.value == "auto":
            draft.note(on, AUTO)
        elif boolean(on):
            draft.put("precision", name, on)
        elif decided is not None and decided.text == name:
            draft.error(on, f"{decided.entry.location if decided.entry else 'a default'} sets precision = {name}",
                        "keep one of the two")  # fmt: skip
        else:
            draft.note(on, "it is off")
    for inner in table["fp16"].mapping if "fp16" in table else ():
        one = table["fp16"].mapping[inner]
        row = KEYS.get(f"fp16.{inner}")
        usual = row.usual[0] if row is not None and row.usual else None
        if not draft.handled(one) and usual == number(one):
            draft.note(one, "a bundle has this value anyway")


def _optimizer(draft: Draft, block: Entry | None) -> None:
    """Import the block `optimizer`. Adam and AdamW become `adamw`; a bundle for ZeRO also uses DeepSpeed's AdamW. If a
    value is "auto", the trainer's argument decides.
    """
    if block is None:
        return
    kind = block.mapping.get("type")
    name = "" if kind is None else str(kind.value).lower()
    if name in ("adamw", "adam") and kind is not None:
        own = draft.settings.get("optimizer")
        if own is not None and own.entry is not None and not own.text.startswith("adamw"):
            draft.error(kind, f"{own.entry.location} sets {own.text}", "keep one of the two")
        else:
            earlier = draft.take("optimizer")
            draft.put("optimizer", "adamw", kind, "a bundle also uses DeepSpeed's AdamW")
            draft.mark(earlier, "mapped", "optimizer = adamw", "the DeepSpeed file decides")
    elif kind is not None:
        draft.error(kind, "a bundle configures only AdamW in DeepSpeed's file", "leave the block out and write `optim`")
    params = block.mapping.get("params")
    for inner, one in (params.mapping if params is not None else {}).items():
        if one.value == "auto":
            draft.note(one, AUTO)
        elif inner in ("lr", "eps", "weight_decay"):
            draft.setting(f"optimizer.{inner}", one)
        elif inner == "betas" and len(one.items) == 2 and None not in [number(part) for part in one.items]:
            draft.put("optimizer.betas", tuple(number(part) for part in one.items), one)
        elif inner in ("torch_adam", "adam_w_mode", "bias_correction"):
            same = boolean(one) is not (inner == "torch_adam")
            draft.note(one, "it only chooses a kernel") if same or inner == "torch_adam" else draft.error(
                one, f"`{inner}` is always on in a bundle's AdamW"
            )
        else:
            draft.error(one, "a bundle's AdamW has no such parameter")


def _scheduler(draft: Draft, block: Entry | None) -> None:
    """Import `scheduler`: WarmupLR becomes `constant`, WarmupDecayLR `linear`, and WarmupCosineLR `cosine`. The
    schedule of the DeepSpeed file overrides the trainer's argument `lr_scheduler_type`.
    """
    if block is None:
        return
    kind = block.mapping.get("type")
    name = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}.get(
        "" if kind is None else str(kind.value)
    )
    if kind is not None and name is None:
        draft.error(kind, "xpc has no such schedule", "leave the block out and write `lr_scheduler_type`")
    elif kind is not None:
        old = draft.settings.pop("schedule", None)
        if old is not None and old.entry is not None and old.text != name:
            draft.note(old.entry, f"{kind.location} overrules this key")
            draft.warn(kind, f"DeepSpeed's schedule overrules {shown(old.entry)}")
        draft.put("schedule", name, kind)
        draft.warn(kind, f"DeepSpeed's schedule is written as `{name}`, whose warm-up is linear")
    params = block.mapping.get("params")
    for inner, one in (params.mapping if params is not None else {}).items():
        if one.value == "auto":
            draft.note(one, AUTO)
        elif inner == "warmup_max_lr":
            draft.setting("optimizer.lr", one)
        elif inner == "warmup_num_steps" and integer(one) is not None:
            draft.put("schedule.warmup", Amount("count", integer(one) or 0), one)
        elif inner in ("warmup_min_lr", "warmup_min_ratio") and number(one) == 0:
            draft.note(one, "a warm-up always begins at 0")
        elif inner == "cos_min_ratio" and (least := number(one)) is not None:
            draft.put("schedule.min_lr", Amount("share", least), one)
        elif inner == "last_batch_iteration" and number(one) == -1:
            draft.note(one, "-1 starts the schedule at the first step, as a bundle does")
        elif inner == "total_num_steps" and integer(one) is not None:
            if draft.value("train.steps") == str(integer(one)):
                draft.note(one, "the length of the run")
            else:
                draft.error(one, "a schedule ends with the run", "write `max_steps` with this number, or leave it out")
        elif inner == "warmup_type" and one.value in ("log", "linear"):
            draft.note(one, "reported with the schedule" if one.value == "log" else "a spec's warm-up is linear")
        else:
            draft.error(one, "xpc's schedules have no such parameter")


def _level(draft: Draft, level: Entry | None) -> int | None:
    """Set the strategy for a ZeRO stage, if the file states one, and return the stage."""
    found = integer(level)
    if found is not None and found in STAGES:
        draft.put("strategy", STAGES[found], level)
    else:
        draft.error(level, "the value must be 0, 1, 2 or 3")
    return found


def stage(draft: Draft, block: Entry | None) -> None:
    """Import `zero_optimization`: the ZeRO stage, offloading, and further settings such as bucket sizes."""
    if block is None or not block.mapping:
        draft.note(block, "no stage is named")
        draft.default("strategy", "ddp", "the DeepSpeed file names no ZeRO stage")
        return
    table = block.mapping
    number_ = _level(draft, table.get("stage"))
    for name, path in KEYS.block("zero_optimization").column("setting").items():
        one = table.get(name)
        if one is not None and one.value == "auto":
            draft.note(one, AUTO)
        elif one is not None and name == "round_robin_gradients" and number_ == 3:
            draft.note(one, "zero3 does not read it")
        elif one is not None and number_:
            draft.setting(path, one)
        elif one is not None:
            draft.note(one, "nothing is sharded")
    offload(draft, table.get("offload_optimizer"), table.get("offload_param"), number_ or 0)
    one = table.get("allgather_partitions")
    if boolean(one):
        draft.note(one, "DeepSpeed's own default")
    one = table.get("stage3_gather_16bit_weights_on_model_save")
    if one is not None and not number_:
        draft.note(one, "nothing is sharded")


def offload(draft: Draft, optimizer: Entry | None, param: Entry | None, level: int) -> None:
    """Set `strategy.offload` from the devices for the optimizer states and for the weights. It is `optimizer` if only
    the optimizer states are offloaded, and `cpu` if the weights are offloaded, too.
    """
    on = {}
    for name, block in (("optimizer", optimizer), ("param", param)):
        if block is None:
            continue
        device = block.mapping.get("device", None) if block.mapping else block
        word = "none" if device is None or device.empty else str(device.value).lower()
        if word in ("cpu", "none"):
            on[name] = word == "cpu"
        else:
            draft.error(device or block, "a spec offloads only to the CPU", "write `cpu` or `none`")
        for inner, one in block.mapping.items():
            if inner == "pin_memory" and on.get(name) and boolean(one):
                draft.note(one, "a bundle has this value anyway")
            elif inner != "device" and not on.get(name):
                draft.note(one, "nothing is offloaded")
        if device is not None and word == "none":
            draft.note(device, "nothing is offloaded")
    devices = [
        one.mapping.get("device", one)
        for one, name in ((optimizer, "optimizer"), (param, "param"))
        if one and on.get(name)
    ]
    if on.get("param") and level != 3 and devices:
        draft.note(devices[-1], "only zero3 shards and offloads parameters")
        on["param"] = False
    if on.get("param") and not on.get("optimizer") and devices:
        draft.mark(devices[-1], "mapped", "strategy")
        draft.differs(
            "offload_param",
            "the source offloads only the weights; a spec can offload only the optimizer states, or both. This "
            "spec offloads nothing: the numbers are the same, but the run needs more GPU memory",
            devices[-1],
        )
    elif on.get("optimizer"):
        for one in devices[: 2 if on.get("param") else 1]:
            draft.put("strategy.offload", "cpu" if on.get("param") else "optimizer", one)


def inline(draft: Draft, block: Entry, value: object = None) -> None:
    """Import `deepspeed_config` of accelerate's YAML. Its keys have other names than in a DeepSpeed file: `zero_stage`
    is the file's `zero_optimization.stage`.
    """
    table = block.mapping
    found = _level(draft, table.get("zero_stage"))
    if not {"zero_stage", "deepspeed_config_file"} & {*table}:
        draft.default("strategy", "zero2", "not set: accelerate's default")
    offload(draft, table.get("offload_optimizer_device"), table.get("offload_param_device"), found or 0)
    for name, path in (("gradient_accumulation_steps", "batch.accum"), ("gradient_clipping", "optimizer.clip")):
        one = table.get(name)
        if one is not None and one.value in ("auto", "none", None):
            draft.note(one, AUTO)
        elif one is not None:
            draft.setting(path, one, weak=True)
    saved = table.get("zero3_save_16bit_model")
    if saved is not None and (boolean(saved) or found != 3):
        draft.note(saved, "a bundle gathers the weights that it saves")
    elif saved is not None:
        draft.keep_in_extra("deepspeed", "zero_optimization.stage3_gather_16bit_weights_on_model_save", saved)
    irrelevant = load("accelerate/keys.toml").block("deepspeed_config").column("irrelevant")
    for name, one in table.items():
        if draft.handled(one):
            continue
        if name in irrelevant:
            draft.note(one, irrelevant[name])
        elif one.off or plain(one) == "none":
            draft.note(one, "it is off")
        elif name in IGNORED:
            draft.note(one, "accelerate does not pass this key on to DeepSpeed")
            draft.warn(one, "accelerate does not pass this key on to DeepSpeed: write it into a DeepSpeed file")
        elif name != "deepspeed_config_file":
            draft.error(one, "a bundle's accelerate.yaml has no such key")


def ulysses(draft: Draft, block: Entry | None) -> None:
    """Import `parallelism_config` of a DeepSpeed run. It configures Ulysses, in which `sp_size` processes share each
    sequence.
    """
    table = {} if block is None else block.mapping
    for key, one in table.items():
        name, value = key.removeprefix("parallelism_config_"), integer(one)
        if name == "sp_size" and value is not None and value > 1:
            draft.put("strategy.context_parallel", value, one)
        elif name == "sp_attn_implementation" and not one.empty:
            attention = next((own for own, theirs in ATTENTION.items() if theirs == text(one)), None)
            if attention is None:
                draft.error(one, "sequences are split with sdpa, flash_attention_2 or flash_attention_3")
            else:
                draft.default("model.attn", attention, "sequences are split with this attention")
                draft.mark(one, "mapped", "model.attn")
        elif name in ("cp_size", "tp_size") and value is not None and value > 1:
            draft.error(one, "under DeepSpeed, `sp_size` is the only mesh size that a spec can set")
        else:
            draft.note(one, "a bundle sets this value itself")
