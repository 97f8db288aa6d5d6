"""Check the names and values in `extra LIBRARY { }`: which names the block accepts, and which it refuses because a
setting of xpc decides them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import cache

from xpc.compiler.language.schema import owner_of
from xpc.compiler.stacks import Json, Stack

ONLY_FSDP1 = {
    "fsdp_backward_prefetch": "FSDP2 prefetches by itself",
    "fsdp_use_orig_params": "FSDP2 always keeps the original parameters",
    "fsdp_sync_module_states": "FSDP2 needs no such copy",
}
"""Maps each key of accelerate that only FSDP1 reads to a phrase that says what FSDP2 does."""
OWNED = {
    "trl": {
        "use_cpu": "hardware", "ddp_backend": "hardware", "dataloader_pin_memory": "hardware",
        "shuffle_dataset": "data.shuffle", "use_cache": "memory.checkpointing",
        "deepspeed": "strategy", "fsdp": "strategy", "fsdp_config": "strategy", "parallelism_config": "strategy",
    },
    "accelerate": {
        "compute_environment": "launch", "distributed_type": "strategy", "mixed_precision": "precision",
        "use_cpu": "hardware", "num_machines": "nodes", "num_processes": "hardware", "machine_rank": "nodes",
        "main_process_ip": "nodes", "main_process_port": "nodes",
        "rdzv_backend": "launch.rendezvous", "same_network": "nodes", "gpu_ids": "hardware",
        "deepspeed_config": "strategy", "fsdp_config": "strategy", "parallelism_config": "strategy",
        "fsdp_version": "strategy", "fsdp_sharding_strategy": "strategy",
        "fsdp_reshard_after_forward": "strategy.reshard",
        "fsdp_state_dict_type": "strategy.state_dict", "fsdp_offload_params": "strategy.offload",
        "parallelism_config_cp_size": "strategy.context_parallel",
        "parallelism_config_dp_replicate_size": "strategy.shard", "parallelism_config_dp_shard_size": "strategy.shard",
        **dict.fromkeys(
            (f"parallelism_config_{name}" for name in (
                "cp_backend", "cp_comm_strategy", "sp_attn_implementation", "sp_backend", "sp_seq_length",
                "sp_seq_length_is_variable", "sp_size", "tp_size",
            )), "strategy",
        ),
    },
    "deepspeed": {
        "zero_optimization.stage": "strategy", "zero_optimization.overlap_comm": "strategy.overlap_comm",
        "zero_optimization.allgather_bucket_size": "strategy.allgather_bucket",
        "zero_optimization.reduce_bucket_size": "strategy.reduce_bucket",
        "zero_optimization.round_robin_gradients": "strategy.round_robin_gradients",
        "zero_optimization.reduce_scatter": "strategy.reduce_scatter",
        "zero_optimization.contiguous_gradients": "strategy.contiguous_gradients",
        "zero_optimization.offload_optimizer": "strategy.offload",
        "zero_optimization.offload_param": "strategy.offload",
        "zero_optimization": "strategy", "train_batch_size": "batch.gbs",
        "train_micro_batch_size_per_gpu": "batch.micro",
        "gradient_accumulation_steps": "batch.accum", "gradient_clipping": "optimizer.clip", "bf16": "precision",
        "fp16": "precision", "bf16.enabled": "precision", "fp16.enabled": "precision", "bfloat16": "precision",
        "torch_autocast": "precision", "optimizer": "optimizer", "scheduler": "schedule",
        "activation_checkpointing": "memory.checkpointing",
    },
}  # fmt: skip
"""For each library, maps a name that its `extra` block refuses to the setting that decides it. An `extra` block also
refuses every argument that a row of the table of settings lists (`args`).
"""
SHARED = (
    "zero_optimization", "zero_optimization.offload_optimizer", "zero_optimization.offload_param", "bf16", "fp16",
)  # fmt: skip
"""Blocks of deepspeed.json in which settings of xpc decide some of the keys. `extra` may set the other keys of these
blocks.
"""


MAPPING = "a mapping, which `extra` cannot write"


def owner(library: str, name: str, method: str = "sft") -> str | None:
    """The path of the setting that decides a name in an `extra` block. None if no setting decides the name, so that the
    block may set it. `library` is the library of the block: trl, accelerate or deepspeed. Only settings that the spec's
    method reads are considered.
    """
    if library == "trl":
        row = owner_of(name)
        if row is not None:
            return row.path if not row.methods or method in row.methods else None
    owned, head = OWNED[library], name
    while head and head not in owned and not (head != name and head in SHARED):
        head = head.rpartition(".")[0]
    return owned.get(head) if head == name or head not in SHARED else None


def wrong_value(stack: Stack, library: str, name: str, value: object, method: str = "sft") -> str | None:
    """Describe the legal values of an argument in an `extra` block if `value` is illegal: "one of no, steps, epoch".
    None for a legal value, or if the type of the argument cannot be checked.
    """
    if library != "trl":
        return _wrong_key(stack, library, name, value)
    field = stack.fields(stack.config(method)).get(name)
    if field is None:
        return None
    if field.choices:
        return None if value in field.choices else _one_of(map(str, field.choices))
    words = sorted({word.strip() for word in field.type.split("|")} - {"None"})
    if any(word.startswith("dict") for word in words):
        return MAPPING
    kinds: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}
    if not words or not set(words) <= set(kinds):
        return _wrong_list(words, value)
    fits = any(isinstance(value, kinds[word]) and isinstance(value, bool) is (word == "bool") for word in words)
    return _outside(stack.legal(method, name), value) if fits else " or ".join(words)


def _wrong_list(words: list[str], value: object) -> str | None:
    """Describe the legal lists for an argument if `value` is not one of them. None if the list is legal, or if the
    argument's type `words` cannot be checked.
    """
    if words == ["list[str]"]:
        fits = isinstance(value, list) and all(isinstance(one, str) for one in value)
        return None if fits else "a list of texts"
    if words != ["tuple[float, float]"]:
        return None
    two = isinstance(value, list) and len(value) == 2 and all(is_number(one) for one in value)
    return None if isinstance(value, list) and two and value[0] < value[1] else "a list of two numbers, low and high"


def is_number(value: object) -> bool:
    """Whether a value is a number. True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _outside(legal: Mapping[str, Json], value: object) -> str | None:
    """Describe the values that the stack's policy allows, if `value` is not one of them. Otherwise None."""
    choices = legal.get("one_of")
    if isinstance(choices, list):
        fits = any(type(value) is type(one) and value == one for one in choices)
        return None if fits else _one_of(map(_written, choices))
    if legal and not is_number(value):
        return _bounds(legal)
    return _out_of_bounds(legal, value)


def _one_of(choices: Iterable[str]) -> str:
    """Choices as text: "one of a, b, c"."""
    first, *others = choices
    return f"one of {', '.join([first, *others])}" if others else first


def _written(value: Json) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


PLAIN: dict[str, tuple[type, ...]] = {
    "bool": (bool,), "int": (int,), "float": (int, float), "str": (str,), "Path": (str,), "list": (list,),
}  # fmt: skip


def _wrong_key(stack: Stack, file: str, name: str, value: object) -> str | None:
    """The legal values of a key of accelerate.yaml or deepspeed.json, as text, if `value` is illegal. Otherwise
    None.
    """
    keys = stack.launch_keys(file)
    record = keys.get(name)
    if record is None:
        inner = next((key for key in keys if key.startswith(name + ".")), None)
        return f"keys of its own, such as `{inner}`" if inner else MAPPING
    choices, kind = record.get("choices"), str(record["type"])
    if isinstance(choices, list):
        legal = [str(one).lower() for one in choices] if kind == "str" else choices
        fits = (value.lower() if isinstance(value, str) and kind == "str" else value) in legal
        return None if fits else _one_of(map(str, choices))
    words = sorted({word.strip().partition("[")[0] for word in kind.split("|")} - {"None"})
    if not set(words) <= set(PLAIN):
        return MAPPING
    if not any(_fits(word, file, value) for word in words):
        return " or ".join({"bool": "true or false", "Path": "a path"}.get(word, word) for word in words)
    stated = stack.legal(file, name)
    return _outside(stated, value) if "one_of" in stated else _out_of_bounds({**record, **stated}, value)


def _fits(word: str, file: str, value: object) -> bool:
    if word == "int" and file == "deepspeed" and isinstance(value, float):
        # 1e9 is accepted as an integer, because DeepSpeed's documentation writes integers like this
        return value.is_integer()
    return isinstance(value, PLAIN[word]) and isinstance(value, bool) is (word == "bool")


LIMITS = {
    "low": ("of at least", operator.ge), "above": ("above", operator.gt), "high": ("of at most", operator.le),
    "below": ("below", operator.lt), "other_than": ("other than", operator.ne),
}  # fmt: skip
"""Maps a kind of bound in a stack's tables, such as `low`, to its phrase in messages and to the comparison that a legal
value must satisfy.
"""


def _out_of_bounds(record: Mapping[str, Json], value: object) -> str | None:
    """The bounds of a key as text, if a number is outside of these bounds. Otherwise None."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    fits = all(holds(value, bound) for _, holds, bound in _limits(record))
    return None if fits else _bounds(record)


def _limits(record: Mapping[str, Json]) -> list[tuple[str, Callable[[float, float], bool], float]]:
    found = ((word, holds, record.get(name)) for name, (word, holds) in LIMITS.items())
    return [(word, holds, bound) for word, holds, bound in found if isinstance(bound, int | float)]


def _bounds(record: Mapping[str, Json]) -> str:
    named = {word: bound if isinstance(bound, int) else format(bound, "g") for word, _, bound in _limits(record)}
    low, high = named.get("of at least"), named.get("of at most")
    both = {} if low is None or high is None else {"from": f"{named.pop('of at least')} to {named.pop('of at most')}"}
    return "a number " + " and ".join(f"{word} {bound}" for word, bound in {**both, **named}.items())


def removed(stack: Stack, library: str, name: str) -> str | None:
    """The message for a key that the stack's DeepSpeed has removed. None for any other key. DeepSpeed refuses a removed
    key even if its value switches it off.
    """
    zero = name.startswith("zero_optimization.") and name.split(".")[1] in stack.keys("zero_removed")
    if library != "deepspeed" or not (zero or name.split(".")[0] in stack.keys("deepspeed_removed")):
        return None
    return f"DeepSpeed {stack.pins['deepspeed']} has removed it and refuses it even if it is off: leave it out"


@cache
def legal_names(stack: Stack, library: str, method: str = "sft") -> frozenset[str]:
    """The names that an `extra` block accepts: the library's options in this stack, except the options that a setting
    decides. The options of `trl` are the fields of the method's configuration class.
    """
    if library == "trl":
        known = frozenset(stack.base_arguments(stack.config(method)))
    elif library == "accelerate":
        known = stack.keys("accelerate") | stack.keys("fsdp_config")
    else:
        known = stack.keys("deepspeed") | frozenset(stack.launch_keys("deepspeed"))
    return frozenset(name for name in known if owner(library, name, method) is None)


@cache
def owned_names(stack: Stack, library: str, method: str) -> frozenset[str]:
    """The options of the library that an `extra` block refuses, because a setting decides them."""
    own = stack.base_arguments(stack.config(method)) if library == "trl" else stack.launch_keys(library)
    return frozenset(name for name in {*own, *OWNED[library]} if owner(library, name, method) is not None)
