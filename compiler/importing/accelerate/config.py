"""Import accelerate's YAML: sharding and the number of processes. The importers of axolotl, LLaMA-Factory and TRL also
use this module for their own FSDP and DeepSpeed keys.
"""

from __future__ import annotations

import json
import math
import re

from xpc.compiler.importing.accelerate import deepspeed as zero
from xpc.compiler.importing.accelerate import float8
from xpc.compiler.importing.draft import NULL, Draft
from xpc.compiler.importing.keys import is_usual, load
from xpc.compiler.importing.overrides import Machines, Overrides, named_table
from xpc.compiler.importing.text import json as jsontext
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, integer, text, words
from xpc.compiler.lower.accelerate import ATTENTION
from xpc.compiler.stacks import able
from xpc.grammar.package_data import read_table

SHARDING = {
    "FULL_SHARD": ("fsdp1", True), "SHARD_GRAD_OP": ("fsdp1", False), "NO_SHARD": ("ddp", None),
    "HYBRID_SHARD": ("hsdp", True), "HYBRID_SHARD_ZERO2": ("hsdp", False),
}  # fmt: skip
MESH = ("dp_replicate_size", "dp_shard_size", "cp_size", "tp_size", "sp_size")
CODES = {"1": "FULL_SHARD", "2": "SHARD_GRAD_OP", "3": "NO_SHARD", "4": "HYBRID_SHARD", "5": "HYBRID_SHARD_ZERO2"}
KEYS = load("accelerate/keys.toml")
BLOCKS = {"deepspeed_config": "DEEPSPEED", "fsdp_config": "FSDP", "parallelism_config": "FSDP"}
OFF = {"NO": None, "MULTI_GPU": None, "MULTI_CPU": None}


def accelerate(draft: Draft, table: Entries, overrides: Overrides, found: Machines) -> None:
    """Import a complete accelerate YAML file: distributed type, processes, sharding and mixed precision.

    If the trainer's arguments turn on bf16 or fp16, they override `mixed_precision`, because transformers then sets
    accelerate's precision.
    """
    kind = table.get("distributed_type")
    name = "NO" if kind is None else str(text(kind)).upper()
    for key, slot in (("num_processes", "total"), ("num_machines", "nodes")):
        one = table.get(key)
        if one is not None:
            count(draft, one, slot, found)
    cpu = table.get("use_cpu")
    if cpu is not None:
        found.cpu = found.cpu or boolean(cpu) is True
        draft.mark(cpu, "mapped", "hardware")
    if name == "DEEPSPEED" and kind is not None:
        draft.mark(kind, "mapped", "strategy")
        block = table.get("deepspeed_config")
        if block is not None:
            zero.inline(draft, block)
            named = block.mapping.get("deepspeed_config_file")
            if named is not None:
                named_file(draft, named, overrides)
        else:
            draft.default("strategy", "zero2", "not set: accelerate's default")
        ulysses(draft, table.get("parallelism_config"))
    elif name == "FSDP" and kind is not None:
        draft.mark(kind, "mapped", "strategy")
        mesh(draft, table.get("parallelism_config"))
        _processes_of(table.get("parallelism_config"), found)
        fsdp(draft, table.get("fsdp_config"))
    elif name in OFF and kind is not None:
        zero_on = draft.has("strategy") and draft.settings["strategy"].text.startswith("zero")
        if zero_on and name != "MULTI_CPU":
            draft.note(kind, "the trainer's DeepSpeed file decides")
        else:
            draft.mark(kind, "mapped", "strategy = ddp")
            draft.put("strategy", "ddp", kind)
        found.cpu = found.cpu or name == "MULTI_CPU"
    elif kind is not None:
        draft.error(kind, "the language has DDP, ZeRO and FSDP")
    _unused(draft, table, name)
    mixed = table.get("mixed_precision")
    if mixed is not None:
        _mixed(draft, mixed)
    if "fp8_config" in table:
        float8.block(draft, table["fp8_config"], mixed)
    for key, one in table.items():
        if (one.file, one.key) in draft.fates or one.mapping:
            continue
        if key in KEYS:
            draft.note(one, KEYS[key].irrelevant)
        elif one.off or one.value in ("no", "NO"):
            draft.note(one, "it is off")
        elif not draft.escape("accelerate", key, one):
            draft.error(one, f"the accelerate of {draft.stack.name} has no such key, or a bundle decides it")


NODE = 8
"""The assumed number of GPUs per node, used if only the mesh sizes, such as `dp_shard_size`, show the number of
processes.
"""


def _processes_of(block: Entry | None, found: Machines) -> None:
    """Compute the number of processes as the product of the mesh sizes, such as `dp_shard_size: 8`, if the file does
    not state it.
    """
    sizes = [one for key, one in ({} if block is None else block.mapping).items()
             if key.removeprefix("parallelism_config_") in MESH and (integer(one) or 0) > 1]  # fmt: skip
    if found.total is not None or found.each is not None or not sizes:
        return
    found.total = math.prod(integer(one) or 1 for one in sizes)
    found.entries += sizes
    if found.nodes is None and found.total > NODE and found.total % NODE == 0:
        found.nodes = found.total // NODE


def count(draft: Draft, entry: Entry, slot: str, found: Machines) -> None:
    """Set the attribute `slot` of `found` to a number of processes or nodes. A number below 1 is an error."""
    value = integer(entry)
    if value is None or value < 1:
        draft.error(entry, "it takes a whole number above 0")
        return
    setattr(found, slot, value)
    found.entries.append(entry)
    draft.mark(entry, "mapped", "hardware, nodes")


def _unused(draft: Draft, table: Entries, name: str) -> None:
    """Mark the blocks that accelerate does not read for this `distributed_type` (`name`) as irrelevant, such as
    `fsdp_config` in a DeepSpeed run.
    """
    for key in ("deepspeed_config", "fsdp_config", "parallelism_config", "megatron_lm_config", "dynamo_config",
                "mpirun_config", "ipex_config"):  # fmt: skip
        block = table.get(key)
        if block is None or name == BLOCKS.get(key) or (key, name) == ("parallelism_config", "DEEPSPEED"):
            continue
        for one in block.mapping.values() or [block]:
            if one.key.endswith("sp_size") and (integer(one) or 1) > 1:
                draft.error(one, f"{name} has no Ulysses parallelism", "`context_parallel` splits sequences under ZeRO")
            elif key == "dynamo_config":
                _dynamo(draft, one, block)
            else:
                draft.note(one, f"{name} does not read it")


def _dynamo(draft: Draft, entry: Entry, block: Entry) -> None:
    """Import one key of `dynamo_config`: the backend inductor becomes `torch_compile`, and other backends are errors.
    Keys that tune the compiler are irrelevant, because they do not change results.
    """
    table = {key.removeprefix("dynamo_"): one for key, one in block.mapping.items()}
    backend = table.get("backend")
    word = "NO" if backend is None or backend.empty else str(text(backend)).upper()
    if word in ("NO", "FALSE"):
        draft.note(entry, "nothing is compiled")
    elif entry is not backend:
        draft.note(entry, "it decides how torch compiles, not what torch computes")
    elif word != "INDUCTOR" or not draft.escape("trl", "torch_compile", Entry(entry.key, True, entry.file, entry.line)):
        draft.error(entry, "a bundle compiles a model by inductor only", "write `dynamo_backend: INDUCTOR` or `NO`")


def _mixed(draft: Draft, entry: Entry) -> None:
    word = str(text(entry)).lower()
    word = "no" if word == "false" else word
    decided = draft.settings.get("precision")
    if word not in ("no", "bf16", "fp16", "fp8"):
        draft.error(entry, "it takes no, bf16, fp16 or fp8")
    elif decided is not None and decided.text in ("bf16", "fp16"):
        same = decided.text == word
        why = "the trainer's arguments agree" if same else f"the trainer decides: precision = {decided.text}"
        draft.note(entry, why)
        if not same and word != "no":
            draft.warn(entry, why)
    elif word == "no":
        draft.put("precision", "fp32", entry)
    else:
        if decided is not None and decided.entry is not None:
            draft.warn(
                entry, f"it decides, because {decided.entry.place} turns neither bf16 nor fp16 on, as in transformers"
            )
            draft.mark(decided.entry, "irrelevant", why="accelerate's file decides")
            del draft.settings["precision"]
        draft.put("precision", word, entry)


def fsdp(draft: Draft, block: Entry | None) -> None:
    """Import `fsdp_config`, whose keys may lack the prefix `fsdp_`. A file without `fsdp_version` means FSDP1."""
    table: dict[str, Entry] = {}
    for key, one in ({} if block is None else block.mapping).items():
        table[key if key.startswith("fsdp_") else f"fsdp_{key}"] = one
    version, sharding = table.get("fsdp_version"), table.get("fsdp_sharding_strategy")
    reshard = table.get("fsdp_reshard_after_forward")
    second = version is not None and integer(version) == 2
    hybrid = draft.has("strategy") and draft.settings["strategy"].text == "hsdp"
    if version is not None and integer(version) not in (1, 2):
        draft.error(version, "FSDP has versions 1 and 2")
    word = "" if sharding is None else str(text(sharding)).upper()
    word = CODES.get(word, word)
    if reshard is not None and boolean(reshard) is None and str(reshard.value).upper() in SHARDING:
        sharding, word, reshard = reshard, str(reshard.value).upper(), None
    name, kept = SHARDING.get(word, ("fsdp1", None))
    if sharding is not None and not sharding.empty and word not in SHARDING:
        draft.error(sharding, "FSDP has FULL_SHARD, SHARD_GRAD_OP, NO_SHARD and HYBRID_SHARD")
    name = "fsdp" if second and name == "fsdp1" else name
    if name == "fsdp" and not draft.stack.facts.fsdp2 and version is not None:
        other = able(lambda one: one.facts.fsdp2)
        draft.error(version, f"{draft.stack.name} has no FSDP2", f"write `--target {other}`")
    if not hybrid:
        for entry in (sharding, version):
            if entry is not None and not entry.empty:
                draft.put("strategy", name, entry)
        draft.default("strategy", name, "not set: accelerate's FSDP")
    else:
        for entry in (sharding, version):
            draft.note(entry, "the device mesh decides")
    if kept is False and sharding is not None:
        draft.put("strategy.reshard", False, sharding)
    if reshard is not None and second:
        draft.setting("strategy.reshard", reshard)
    elif reshard is not None:
        draft.note(reshard, "FSDP1 does not read it")
    _fsdp_rest(draft, table)


def _fsdp_rest(draft: Draft, table: Entries) -> None:
    state, params, again = (
        table.get(f"fsdp_{name}") for name in ("state_dict_type", "offload_params", "activation_checkpointing")
    )
    if state is not None:
        form = {"FULL_STATE_DICT": "full", "SHARDED_STATE_DICT": "sharded"}.get(str(state.value).upper())
        if form is None:
            draft.error(state, "checkpoints are full or sharded", "write `FULL_STATE_DICT` or `SHARDED_STATE_DICT`")
        else:
            draft.put("strategy.state_dict", form, state)
    if params is not None:
        if boolean(params):
            draft.put("strategy.offload", "cpu", params)
        else:
            draft.note(params, "nothing is offloaded")
    if again is not None and boolean(again):
        draft.put("memory.checkpointing", True, again, "the language has one setting for both")
    elif again is not None:
        draft.note(again, "`gradient_checkpointing` decides")
    for key, one in table.items():
        if (one.file, one.key) in draft.fates:
            continue
        row = KEYS.get(f"fsdp_config.{key}")
        if one.empty:
            draft.note(one, NULL)
        elif row is not None and is_usual(row, one):
            draft.note(one, "a bundle states the same")
        elif key == "fsdp_transformer_layer_cls_to_wrap":
            draft.note(one, "the model names its layers")
        elif key == "fsdp_limit_all_gathers":
            draft.note(one, "a bundle keeps torch's default")
        elif not draft.escape("accelerate", key, one):
            draft.error(one, f"the FSDP of {draft.stack.name} has no such key, or a bundle decides it")


def ulysses(draft: Draft, block: Entry | None) -> None:
    """Import `parallelism_config` of a DeepSpeed run: Ulysses, where `sp_size` processes split each sequence."""
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
                draft.default("model.attn", attention, "the attention that splits sequences")
                draft.mark(one, "mapped", "model.attn")
        elif name in ("cp_size", "tp_size") and value is not None and value > 1:
            draft.error(one, "under DeepSpeed only `sp_size` splits sequences")
        else:
            draft.note(one, "a bundle states what its target needs")


def mesh(draft: Draft, block: Entry | None) -> None:
    """Import `parallelism_config` of an FSDP run: hybrid sharding and context parallelism. Tensor parallelism is an
    error.
    """
    table = {
        key.removeprefix("parallelism_config_"): one for key, one in ({} if block is None else block.mapping).items()
    }
    replicate, shard, context = (table.get(name) for name in ("dp_replicate_size", "dp_shard_size", "cp_size"))
    parallel = integer(context) if context is not None else None
    if context is not None and parallel and parallel > 1:
        draft.put("strategy.context_parallel", parallel, context)
    if replicate is not None and (integer(replicate) or 0) > 1:
        draft.put("strategy", "hsdp", replicate)
        if shard is not None and integer(shard):
            draft.put("strategy.shard", (integer(shard) or 1) * (parallel or 1), shard)
    for key, one in table.items():
        if (one.file, one.key) in draft.fates:
            continue
        if key in ("dp_replicate_size", "dp_shard_size", "cp_size", "tp_size", "sp_size") and (
            integer(one) in (0, 1, None) or key == "dp_shard_size"
        ):
            draft.note(one, "it follows the number of processes")
        elif key.startswith(("cp_", "sp_")) and key not in ("sp_size",):
            draft.note(one, "a bundle states what its target needs")
        else:
            draft.error(one, "the language has no tensor parallelism, and Ulysses parallelism only under ZeRO")


def trainer_fsdp(draft: Draft, named: Entries) -> None:
    """Import transformers' arguments `fsdp`, such as "full_shard auto_wrap", and `fsdp_config`."""
    entry, config = named.get("fsdp"), named.get("fsdp_config")
    wrap = named.get("fsdp_transformer_layer_cls_to_wrap")
    least = named.get("fsdp_min_num_params")
    if entry is None or entry.off:
        for one in (entry, config, wrap, least):
            if one is not None:
                for part in one.mapping.values() or [one]:
                    draft.note(part, "`fsdp` is not on")
        return
    terms = [one.lower() for one in words(entry) or []]
    if boolean(entry):
        terms = ["full_shard"]
    old = [one for one in terms if one.upper() in SHARDING]
    if "offload" in terms:
        draft.put("strategy.offload", "cpu", entry)
    odd = [one for one in terms if one not in (*old, "auto_wrap", "offload")]
    if odd or len(old) > 1:
        draft.error(entry, f"`{odd[0] if odd else old[1]}` is not an option of it")
        return
    name, kept = SHARDING[(old or ["full_shard"])[0].upper()]
    version = config.mapping.get("version", config.mapping.get("fsdp_version")) if config is not None else None
    outer = named.get("fsdp_version")
    version = version or outer
    if name == "fsdp1" and version is not None and integer(version) == 2:
        name = "fsdp"
    if draft.has("strategy") and draft.settings["strategy"].text == "hsdp":
        name = "hsdp"  # `parallelism_config` already chose hybrid sharding
    draft.put("strategy", name, entry)
    if outer is not None:
        draft.put("strategy", name, outer)
    if kept is False:
        draft.put("strategy.reshard", False, entry)
    draft.note(wrap, "the model names its layers")
    draft.note(least, "the layers are wrapped by their class")
    if config is not None and config.mapping:
        if outer is not None and not any(key.endswith("version") for key in config.mapping):
            joined = {**config.mapping, "fsdp_version": outer}
            fsdp(draft, Entry(config.key, joined, config.file, config.line))
        else:
            fsdp(draft, config)
    elif config is not None and not config.empty:
        draft.error(config, "write the mapping itself, not the name of a file")


STAGE = re.compile(r"(?:zero|stage|z)[-_]?([0123])(?![0-9])")


def _by_its_name(draft: Draft, entry: Entry, name: str) -> None:
    """Take the ZeRO stage from the file name, such as `ds_z3.json`, if the DeepSpeed file does not exist here."""
    stage = STAGE.search(name.rpartition("/")[2].lower())
    if stage is None or "offload" in name:
        draft.error(entry, "the file does not exist", "`--deepspeed FILE` names it")
        return
    draft.put("strategy", zero.STAGES[int(stage[1])], entry)
    draft.differs("deepspeed", f"`{name}` does not exist: the spec takes the stage in its name and DeepSpeed's "
                  "defaults (`--deepspeed FILE` reads it)", entry)  # fmt: skip


def missing_launch(draft: Draft, entry: Entry, name: str) -> bool:
    """Take the ZeRO stage from the file name, such as `zero3.yaml`, if the accelerate file does not exist here. Returns
    False if the name contains no stage.
    """
    stage = STAGE.search(name.rpartition("/")[2].lower())
    if stage is None or "offload" in name:
        return False
    draft.put("strategy", zero.STAGES[int(stage[1])], entry)
    draft.differs("config_file", f"`{name}` does not exist: the spec takes the stage in its name, and accelerate's "
                  "defaults (`--accelerate FILE` reads it)", entry)  # fmt: skip
    return True


def named_file(draft: Draft, entry: Entry, overrides: Overrides) -> None:
    """Import the DeepSpeed file that an argument names, or the mapping that it contains.

    If the file is missing, import the file of the same name that LLaMA-Factory or axolotl publishes. If they publish
    none, take only the ZeRO stage from the name.
    """
    if entry.mapping:
        zero.zero(draft, entry.mapping, f"{entry.key}.")
        return
    name = text(entry) or ""
    data = overrides.read(name)
    usual = None if data is not None else read_table(__file__, "deepspeed_files.toml").get(name.rpartition("/")[2])
    if usual is not None:
        data = json.dumps(usual).encode()
        draft.warn(entry, "the file does not exist: the tool's own file of this name is used",
                   "`--deepspeed FILE` names another")  # fmt: skip
    if data is None:
        _by_its_name(draft, entry, name)
        return
    table = named_table(draft, entry, jsontext.read, data, name)
    if table is None:
        return
    draft.mark(entry, "mapped", "strategy")
    zero.zero(draft, table)
