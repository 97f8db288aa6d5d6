"""Choose the generated specs that train a step on a tiny model. A spec for the CPU trains as it is; a spec for GPUs
trains as a CPU variant.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any

from attrs import frozen
from lowered import lowered_files, resolved, write
from ports import free_port
from stacks import has
from tiny_models import SIZES

from xpc.compiler.data.rows import conversational
from xpc.compiler.language.optimizers import TORCH
from xpc.compiler.spec import Spec

ROWS, MOST_ROWS = 64, 256
"""ROWS rows are written for a step. A spec for the CPU gets enough rows for complete steps, but at most MOST_ROWS."""
TIMEOUT = 120
"""A step may take this many seconds, including imports that only its trainer needs."""

DECOMPOSED = ("pissa", "olora", "loftq", "eva")
"""Values of `lora.init` for which a rank above the width of a layer is impossible (XP146)."""
NARROWEST = SIZES["hidden_size"] // SIZES["num_attention_heads"] * SIZES["num_key_value_heads"]
"""The number of outputs of the tiny model's `k_proj`."""

MEMORY = 6
"""The process of a step may use this many GiB of memory. A step that needs more is a finding; the limit protects the
machine.
"""


@frozen
class Candidate:
    """An accepted spec that may be trained. `chosen` picks from each `kind` of specs, so that rare kinds are trained,
    too.
    """

    name: str
    text: str
    kind: tuple[str, ...]


def packs(spec: Spec) -> bool:
    """Whether the spec's stack can train a quantized base on a CPU (XP479)."""
    if spec.bits == 8 and spec.flag("lora.dora"):
        return False
    return spec.stack.facts.quantized_on_cpu and has(spec.stack.name, "bitsandbytes")


def kind(spec: Spec) -> tuple[str, ...]:
    """The kind of a spec: its strategy, method, adapter, hardware and packing. Training steps are spread over all
    kinds.

    A spec with arguments under `extra trl` has a separate kind for each such argument, because only a training step
    shows what the argument does.
    """
    names = sorted(name for name, value in spec.extra.get("trl", {}).items())
    adapter = "bits" if spec.bits else "lora" if spec.lora else "freeze" if spec.flag("freeze") else ""
    packed = "packed" if spec.flag("batch.packing") or spec.flag("batch.packing.eval") else ""
    where = "cpu" if spec.on_cpu else "gpu"
    return (names[0], "", "", "", "") if names else (spec.text("strategy"), spec.text("method"), adapter, where, packed)


def trainable(spec: Spec) -> bool:
    """Whether a run of the spec is possible here. The environment needs its packages: peft for adapters, and on a CPU
    only torch's optimizers. Adapters that start from the weights or inputs of the tiny model need a rank for which its
    layers are wide enough. LoftQ reads a file of the named model, which only the hub has. EVA needs as many trained
    tokens as the rank, and the rows here have few. `assistant_only` needs conversations, and the prompts and
    completions here are texts.
    """
    if spec.lora and not has(spec.stack.name, "peft"):
        return False
    if spec.get("lora.init") in DECOMPOSED and spec.integer("lora.rank") > NARROWEST:
        return False
    if spec.get("lora.init") == "loftq":
        return False
    if spec.get("lora.init") == "eva" and spec.integer("lora.init_rows") < spec.integer("lora.rank"):
        return False
    if spec.flag("method.assistant_only") and any(conversational(one) is None for one in spec.sources):
        return False
    return not spec.on_cpu or spec.text("optimizer") in TORCH


def chosen(drawn: Iterable[Candidate], number: int, seed: str) -> list[Candidate]:
    """Choose specs of each kind in turn, so that rare kinds are trained as often as frequent kinds."""
    kinds: dict[tuple[str, ...], list[Candidate]] = defaultdict(list)
    for one in drawn:
        kinds[one.kind].append(one)
    draw = Random(seed)
    members = [kinds[one] for one in sorted(kinds)]
    draw.shuffle(members)
    for one in members:
        draw.shuffle(one)
    out: list[Candidate] = []
    while len(out) < number and any(members):
        out += [one.pop() for one in members if one]
    return out[:number]


def step(name: str, text: str, location: str, number: int, at: str = "train", keep: tuple[str, ...] = ()) -> Any:
    """Compile a spec without checking it by rules, into a folder below `location`. Return a pair: the spec's target,
    and the job that trains a step.

    A spec for the CPU runs as it is, ZeRO included. A spec for GPUs runs as its CPU variant (variant.py): every fifth
    spec in two processes, the other specs in one. Every second spec with FSDP2 keeps FSDP, over gloo; hsdp has two
    copies of two processes. Raises ValueError or another exception if the spec cannot be compiled.
    """
    spec = resolved(text, location)
    folder = os.path.join(location, "step", name)
    files = lowered_files(spec)
    if "deepspeed.json" in files and spec.get("strategy.reduce_bucket") is None:
        files["deepspeed.json"] = of_the_stand_in(files["deepspeed.json"])
    write(files, folder)
    own = spec.on_cpu
    fsdp2 = spec.sharded_by_fsdp and not spec.by_fsdp1 and spec.stack.facts.fsdp2
    sharded = "fsdp" in keep or (fsdp2 and number % 2 == 0)
    # Context parallelism uses attention kernels that exist only for GPUs, and offloading uses pinned memory, which
    # needs a GPU, too.
    sharded = sharded and spec.context_parallel == 1 and spec.text("strategy.offload") == "none"
    facts = spec.model.facts
    zero = not own and spec.zero_stage > 0 and not keep and spec.text("optimizer") in TORCH
    several = spec.hardware.world > 1 and (number % 5 == 0 or (zero and number % 2 == 1))
    # With reentrant recomputation, a reward model fails under ddp (XP643), but not under a strategy that shards.
    several = several and not (spec.method.scores and spec.text("strategy") not in ("ddp", "zero1", "zero2", "zero3"))
    copies = 2 if sharded and spec.text("strategy") == "hsdp" else 1
    processes = spec.hardware.world if own else 2 * copies if sharded or several else 1
    packed = spec.flag("batch.packing") or spec.flag("batch.packing.eval") or spec.flag("batch.padding_free")
    steps = 2 if spec.get("schedule.warmup") else 1
    return spec.stack.name, {
        "id": name, "folder": folder, "target": spec.stack.name, "at": at, "on_cpu": True,
        "all_tokens": spec.stack.facts.loss_over_all_tokens,
        "keep": [*keep, *(["fsdp"] if sharded else [])],
        "changed": [], "family": "qwen2" if facts is None else facts.model_type, "shape": "",
        "rows": max(ROWS, min(steps * spec.integer("batch.gbs"), MOST_ROWS)) if own else ROWS,
        "unpacked": bool(spec.bits) and not packs(spec),
        "steps": steps, "stop": True, "measure": "", "port": free_port(),
        "memory": MEMORY, "timeout": TIMEOUT,
        "processes": processes, "group": sharded or zero or (own and spec.zero_stage > 0),
        "checked": not keep and at == "train", "zero": zero, "isolate": spec.written("batch.packing.isolate"),
        # no vLLM here, so the model generates the completions itself
        "reentrant": spec.flag("method.vllm") and spec.stack.facts.generation_ends_reentrant,
        "bits": packs(spec), "flash": packed and spec.text("method") == "sft",
    }  # fmt: skip


def of_the_stand_in(deepspeed: bytes) -> bytes:
    """DeepSpeed's configuration with a bucket size for the tiny model (its hidden size squared). In a bucket of the
    real model's size, all of the tiny model's weights would fit, so the division into buckets would not be tested.
    """
    stated = json.loads(deepspeed)
    stated["zero_optimization"]["reduce_bucket_size"] = SIZES["hidden_size"] ** 2
    return json.dumps(stated).encode()


def step_options(spec: Spec, job: dict[str, Any]) -> tuple[str, ...]:
    """The options of the job that trains a step. The report counts the trained steps by these options."""
    own = spec.on_cpu or job["zero"]
    strategy = spec.text("strategy") if own or "fsdp" in job["keep"] else "ddp"
    many = job["processes"] > 1 or job["group"]
    return (
        f"target {spec.stack.name}", f"method {spec.text('method')}",
        f"strategy {strategy if many else 'one process'}",
        f"processes {job['processes']}", *(["adapters"] if spec.lora else []),
        *(["quantized"] if spec.bits and job["bits"] else []),
        *(["packed"] if spec.flag("batch.packing") else []), *(["extra trl"] if spec.extra.get("trl") else []),
        *(["bf16"] if spec.text("precision") == "bf16" else []),
    )  # fmt: skip
