"""Import the options of torchrun, deepspeed or accelerate launch, such as the numbers of processes and nodes. Options
of `accelerate launch` may also replace keys of accelerate's YAML.
"""

from __future__ import annotations

from xpc.compiler.importing.accelerate import config as sharding
from xpc.compiler.importing.command.line import KEYS, Line
from xpc.compiler.importing.draft import Draft
from xpc.compiler.importing.overrides import Machines
from xpc.compiler.importing.text.entries import Entries, Entry, text


def launcher(draft: Draft, line: Line, found: Machines, launch: Entries | None) -> Entries | None:
    """Import the options of the launcher. Returns the keys of accelerate's YAML (`launch`), changed by options of
    `accelerate launch`; None if there are no keys. The numbers of processes and nodes are stored in `found`.
    """
    _launch_file(draft, line.options.get("config_file"), launch)
    table = dict(launch or {})
    extra: dict[str, Entry] = {}
    irrelevant = KEYS.column("irrelevant")
    for key, one in line.options.items():
        if key == "config_file":
            continue
        if key in ("nproc_per_node", "num_gpus", "nnodes", "num_nodes", "num_processes", "num_machines"):
            slot = {"nproc_per_node": "each", "num_gpus": "each", "num_processes": "total"}.get(key, "nodes")
            if one.unset:
                draft.note(one, f"the script does not set {one.unset}")
                draft.warn(one, f"the script does not set {one.unset}: `--hardware` and `--nodes` name the machines")
                if key in table:
                    draft.note(table.pop(key), f"line {one.line} of the command overrides it")
            elif text(one) in ("gpu", "auto", "-1"):
                draft.note(one, "all GPUs of the node: `--hardware` sets their number")
            else:
                sharding.count(draft, one, slot, found)
                if key in ("num_processes", "num_machines") and key in table:
                    draft.note(table.pop(key), f"line {one.line} of the command overrides it")
        elif line.launcher == "accelerate" and key == "gradient_accumulation_steps" and one.unset:
            draft.note(one, "the trainer's `gradient_accumulation_steps` decides")
        elif line.launcher == "accelerate" and key not in irrelevant:
            extra[key] = one
        elif key == "mixed_precision" and line.launcher == "accelerate":
            table["mixed_precision"] = one
        elif key in irrelevant:
            draft.note(one, irrelevant[key])
        else:
            draft.error(one, f"{line.launcher} has no such option")
    out = _accelerate(draft, extra, table)
    for key, before in (launch or {}).items():
        if key in out and out[key] is not before and not before.mapping:
            draft.note(before, f"line {out[key].line} of the command overrides it")
    return out or None


def _accelerate(draft: Draft, options: dict[str, Entry], table: dict[str, Entry]) -> dict[str, Entry]:
    """Add options of `accelerate launch`, such as `--use_fsdp --fsdp_version 2`, to `table` as keys of accelerate's
    YAML.
    """
    zero = {key: one for key, one in options.items() if key in KEYS.column("renamed")}
    fsdp = {key: one for key, one in options.items() if key.startswith("fsdp_")}
    dynamo = {key: one for key, one in options.items() if key.startswith("dynamo_")}
    if dynamo:
        first = next(iter(dynamo.values()))
        held = table["dynamo_config"].mapping if "dynamo_config" in table else {}
        table["dynamo_config"] = Entry("dynamo_config", {**held, **dynamo}, first.file, first.line)
    for switch, kind, inside, block in (("use_deepspeed", "DEEPSPEED", zero, "deepspeed_config"),
                                        ("use_fsdp", "FSDP", fsdp, "fsdp_config")):  # fmt: skip
        if switch in options:
            one = options.pop(switch)
            table["distributed_type"] = Entry(one.key, kind, one.file, one.line)
        if inside:
            first = next(iter(inside.values()))
            held = table[block].mapping if block in table else {}
            table[block] = Entry(block, {**held, **inside}, first.file, first.line)
    for key in ("cpu", "use_cpu"):
        if key in options:
            table["use_cpu"] = options.pop(key)
    for key, one in options.items():
        if key not in zero and key not in fsdp and key not in dynamo:
            table[key] = one
    return table


def _launch_file(draft: Draft, named: Entry | None, launch: Entries | None) -> None:
    """Record whether accelerate's `--config_file` was read. If it is missing, take the ZeRO stage from its name
    (`zero3.yaml`); a name without a stage is an error.
    """
    if named is None:
        return
    if launch is not None:
        draft.mark(named, "mapped", "the file was read")
        draft.read.append(launch)
    elif named.unset:
        draft.error(named, f"the script does not set {named.unset}", "`--accelerate FILE` names the file")
    elif not sharding.stage_of_name(draft, named, text(named) or "", "accelerate"):
        why = "the file does not exist, so the import does not know how weights and states are sharded"
        draft.error(named, why, "`--accelerate FILE` names the file")
