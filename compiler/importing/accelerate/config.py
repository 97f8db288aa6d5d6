"""Import accelerate's YAML: sharding and the number of processes. The importers of axolotl, LLaMA-Factory and TRL also
use this module, for keys that state a number of processes or name a file of accelerate or DeepSpeed.
"""

from __future__ import annotations

import json
import math
import re

from xpc.compiler.importing.accelerate import deepspeed as zero
from xpc.compiler.importing.accelerate import float8
from xpc.compiler.importing.accelerate.fsdp import fsdp, mesh
from xpc.compiler.importing.command.surroundings import reader
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.keys import load
from xpc.compiler.importing.overrides import Machines, Overrides, named_table
from xpc.compiler.importing.text import json as jsontext
from xpc.compiler.importing.text.entries import Entries, Entry, boolean, integer, is_stated, text
from xpc.grammar.package_data import read_table

MESH = ("dp_replicate_size", "dp_shard_size", "cp_size", "tp_size", "sp_size")
KEYS = load("accelerate/keys.toml")
BLOCKS = {"deepspeed_config": "DEEPSPEED", "fsdp_config": "FSDP", "parallelism_config": "FSDP"}
OFF = {"NO": None, "MULTI_GPU": None, "MULTI_CPU": None}


def accelerate(draft: Draft, table: Entries, overrides: Overrides, found: Machines) -> None:
    """Import a complete accelerate YAML file: distributed type, processes, sharding and mixed precision.

    `mixed_precision` has no effect if the trainer's arguments turn on bf16 or fp16, because transformers then overrides
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
    if kind is not None:
        _distributed(draft, kind, table, overrides, found)
    _unused(draft, table, name)
    mixed = table.get("mixed_precision")
    if mixed is not None:
        _mixed(draft, mixed)
    if "fp8_config" in table:
        float8.block(draft, table["fp8_config"], mixed)
    for key, one in table.items():
        if draft.handled(one) or one.mapping:
            continue
        if key in KEYS:
            draft.note(one, KEYS[key].irrelevant)
        elif one.off or one.value in ("no", "NO"):
            draft.note(one, "it is off")
        elif not draft.keep_in_extra("accelerate", key, one):
            draft.error(one, f"accelerate in {draft.stack.name} has no such key, or a bundle sets the key itself")


def _distributed(draft: Draft, kind: Entry, table: Entries, overrides: Overrides, found: Machines) -> None:
    """Import `distributed_type` and the block that configures it."""
    name = str(text(kind)).upper()
    if name == "DEEPSPEED":
        draft.mark(kind, "mapped", "strategy")
        block = table.get("deepspeed_config")
        if block is not None:
            zero.inline(draft, block)
            named = block.mapping.get("deepspeed_config_file")
            if named is not None:
                named_file(draft, named, overrides)
        else:
            draft.default("strategy", "zero2", "not set: accelerate's default")
        zero.ulysses(draft, table.get("parallelism_config"))
    elif name == "FSDP":
        draft.mark(kind, "mapped", "strategy")
        mesh(draft, table.get("parallelism_config"))
        _processes_of(table.get("parallelism_config"), found)
        fsdp(draft, table.get("fsdp_config"))
    elif name in OFF:
        zero_on = draft.has("strategy") and draft.settings["strategy"].text.startswith("zero")
        if zero_on and name != "MULTI_CPU":
            draft.note(kind, "the trainer's DeepSpeed file decides the strategy")
        else:
            draft.mark(kind, "mapped", "strategy = ddp")
            draft.put("strategy", "ddp", kind)
        found.cpu = found.cpu or name == "MULTI_CPU"
    else:
        draft.error(kind, "xpc supports DDP, ZeRO and FSDP")


NODE = 8
"""The assumed number of GPUs per node, for a file that states mesh sizes such as `dp_shard_size` but no number of
nodes.
"""


def _processes_of(block: Entry | None, found: Machines) -> None:
    """If the file does not state the number of processes, compute it as the product of the mesh sizes, such as
    `dp_shard_size: 8`.
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
    """Store the number of processes or nodes from a key such as `num_processes` in the attribute `slot` of `found`. A
    number below 1 is an error.
    """
    value = integer(entry)
    if value is None or value < 1:
        draft.error(entry, "the value must be a whole number above 0")
        return
    setattr(found, slot, value)
    found.entries.append(entry)
    draft.mark(entry, "mapped", "hardware, nodes")


def _unused(draft: Draft, table: Entries, name: str) -> None:
    """Report each block of the file that accelerate does not read for the file's `distributed_type` (`name`), such as
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
    """Import one key of `dynamo_config`. The backend inductor becomes `torch_compile`, and any other backend is an
    error. Keys that tune the compiler are irrelevant, because they do not change results.
    """
    table = {key.removeprefix("dynamo_"): one for key, one in block.mapping.items()}
    backend = table.get("backend")
    word = str(text(backend)).upper() if is_stated(backend) else "NO"
    if word in ("NO", "FALSE"):
        draft.note(entry, "nothing is compiled")
    elif entry is not backend:
        draft.note(entry, "it changes how torch compiles, and not the results")
    elif word != "INDUCTOR" or not draft.keep_in_extra(
        "trl", "torch_compile", Entry(entry.key, True, entry.file, entry.line)
    ):
        why = "a bundle compiles a model only with the backend inductor"
        draft.error(entry, why, "write `dynamo_backend: INDUCTOR` or `NO`")


def _mixed(draft: Draft, entry: Entry) -> None:
    word = str(text(entry)).lower()
    word = "no" if word == "false" else word
    decided = draft.settings.get("precision")
    if word not in ("no", "bf16", "fp16", "fp8"):
        draft.error(entry, "the value must be `no`, `bf16`, `fp16` or `fp8`")
    elif decided is not None and decided.text in ("bf16", "fp16"):
        same = decided.text == word
        why = (
            "the trainer's arguments agree"
            if same
            else f"the trainer's arguments overrule this key: precision = {decided.text}"
        )
        draft.note(entry, why)
        if not same and word != "no":
            draft.warn(entry, why)
    elif word == "no":
        draft.put("precision", "fp32", entry)
    else:
        if decided is not None and decided.entry is not None:
            reason = f"this key decides the precision, because {decided.entry.location} turns on neither bf16 nor fp16"
            draft.warn(entry, reason)
            draft.mark(decided.entry, "irrelevant", why="accelerate's file decides")
            del draft.settings["precision"]
        draft.put("precision", word, entry)


STAGE = re.compile(r"(?:zero|stage|z)[-_]?([0123])(?![0-9])")


def stage_of_name(draft: Draft, entry: Entry, name: str, tool: str) -> bool:
    """Take the ZeRO stage from the name of a file of DeepSpeed or accelerate that does not exist here, such as
    `ds_z3.json`. Returns False if the name contains no stage. `tool` is `DeepSpeed` or `accelerate`.
    """
    stage = STAGE.search(name.rpartition("/")[2].lower())
    if stage is None or "offload" in name:
        return False
    draft.put("strategy", zero.STAGES[int(stage[1])], entry)
    draft.differs("deepspeed" if tool == "DeepSpeed" else "config_file", f"`{name}` does not exist: the spec takes the "
                  f"ZeRO stage from its name, and the rest from {tool}'s defaults (`--{tool.lower()} FILE` names the "
                  "file)", entry)  # fmt: skip
    return True


def named_file(draft: Draft, entry: Entry, overrides: Overrides) -> None:
    """Import the DeepSpeed file that an argument names, or the mapping that it contains.

    If the path is of another machine, such as `/home/a/repo/ds.json`, search this repository for its last parts. If the
    file does not exist here, import the file of the same name that LLaMA-Factory or axolotl publishes. If neither
    publishes such a file, import only the ZeRO stage that the file's name contains.
    """
    if entry.mapping:
        zero.zero(draft, entry.mapping, f"{entry.key}.")
        return
    name = text(entry) or ""
    moved: dict[str, str] = {}
    data = reader(overrides, {}, moved)(name)
    for found in moved.values():
        draft.warn(entry, f"`{name}` is a path of another machine: the import reads `{found}`")
    usual = None if data is not None else read_table(__file__, "deepspeed_files.toml").get(name.rpartition("/")[2])
    if usual is not None:
        data = json.dumps(usual).encode()
        draft.warn(entry, "the file does not exist: the import uses the file of this name that "
                   "LLaMA-Factory or axolotl publishes",
                   "`--deepspeed FILE` names another")  # fmt: skip
    if data is None:
        if not stage_of_name(draft, entry, name, "DeepSpeed"):
            draft.error(entry, "the file does not exist", "`--deepspeed FILE` names it")
        return
    table = named_table(draft, entry, jsontext.read, data, name)
    if table is None:
        return
    draft.mark(entry, "mapped", "strategy")
    zero.zero(draft, table)
