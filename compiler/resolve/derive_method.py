"""Set defaults of a method or an adapter. A setting that the spec does not state gets its default from the stack's
argument class, such as GRPOConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from xpc.compiler.language.items import DEFAULT
from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.language.methods import METHODS
from xpc.compiler.language.schema import BY_PATH, TABLE, Setting, path_of
from xpc.compiler.plan import packed_bytes
from xpc.compiler.plan.quick_estimate import MemoryInputs
from xpc.compiler.registry.linear_layers import tables
from xpc.compiler.resolve.open_spec import OpenSpec
from xpc.compiler.stacks import Json
from xpc.compiler.stacks.fused_experts import adapted
from xpc.grammar.record import evolve

LORA = {"rank": 16, "alpha": 32.0, "dropout": 0.05}
"""LoRA's defaults for lora_r, lora_alpha and lora_dropout, from TRL's ModelConfig (1.16; in 0.18 they are the same)."""
OTHERS: Mapping[str, Mapping[str, int | float]] = {
    "vera": {"rank": 256, "dropout": 0.0}, "loha": {"rank": 8, "alpha": 8.0, "dropout": 0.0},
    "miss": {"rank": 64, "dropout": 0.0},
}  # fmt: skip
"""Maps kinds of adapters other than LoRA to their defaults: PEFT 0.21 and 0.17 `VeraConfig`, `LoHaConfig`,
`MissConfig`.
"""
OFT_BLOCK = 32
"""Default size of OFT's blocks; PEFT 0.21 and 0.17 `OFTConfig`."""
EVA_ROWS = 256
"""Default number of rows from which EVA computes the initial directions of a layer's adapter."""
EMBEDDING_LR = 1e-6
"""LoRA+'s default learning rate for adapters of embeddings; PEFT 0.21 and 0.17 `optimizers/loraplus.py`."""
ROOM_AFTER_PROMPT = ("cpo", "kto", "orpo")
"""Methods whose trainers shorten rows in their own way before TRL 1: in a row that is too long, they keep only
`seq - max_prompt` tokens of the answers. A rule reports a `max_prompt` that leaves too little room for answers.
"""
TOOL_TIMEOUT = 60
"""Default time limit in seconds of one tool call."""
USUAL_PROMPT = 512
"""The number of tokens of a prompt that the memory plan assumes if the spec does not limit prompts: TRL 0.18's default
limit.
"""


OURS, WHY = "on every stack", {"method.teacher_dtype": "as the model", "method.tool_timeout": "on every stack"}
"""A note gives a reason if a default differs from the default of the target's class. `WHY` has the reasons for some
settings. For all other settings, the reason is `OURS`.
"""


def adapter(of: OpenSpec) -> None:
    """Set the defaults of the adapter. With `qlora`, the base model is quantized to 4 bits; its weights that are not
    quantized get the dtype in which the model computes.
    """
    of.default("lora.targets", "all-linear", "every linear layer except the output head")
    stacks = adapted(of.stack, of.model.model_type, of.get("lora.targets")) or of.get("lora.parameters")
    if stacks:
        of.default("lora.dropout", 0.0, "adapters on experts that are stacked in one parameter cannot have dropout")
    kind = of.adapter
    if kind in ("lora", "qlora") and of.method.grouped:
        of.default(
            "lora.dropout", 0.0, "PEFT's default; with dropout, the two passes of an importance ratio would differ"
        )
    for name, value in OTHERS.get(kind, LORA).items() if kind != "oft" else ():
        of.default(path_of(f"lora.{name}"), value, "PEFT's default" if kind in OTHERS else "TRL's default")
    if of.flag("oft"):
        of.default("lora.dropout", 0.0, "PEFT's default")
        if "lora.rank" not in of.values:
            of.default("lora.block_size", OFT_BLOCK, "PEFT's default")
    if of.get("lora.init") == "eva":
        of.default("lora.init_rows", EVA_ROWS, OURS)
    if "lora.lr_ratio" in of.values:
        of.default("lora.embedding_lr", EMBEDDING_LR, "PEFT's default")
    if of.flag("qlora"):
        of.default("lora.bits", 4, "qlora")
    elif of.model.stored_bits is not None:
        of.default("lora.bits", of.model.stored_bits, "as bitsandbytes has stored the model")
    if of.get("lora.bits") == 4:
        of.default("lora.double_quant", True, "as QLoRA was published")
    if "lora.bits" in of.values and "model.dtype" not in of.values:
        of.set("model.dtype", of.get("precision"), "the dtype that a quantized base computes in")


def note_frozen_dtype(of: OpenSpec) -> None:
    """Add a note if a frozen base is loaded in fp32 because the spec states no dtype. The note suggests bf16.

    bf16 is not the default, because it changes the result: the outputs of layers are then added in bf16. In a test with
    sft on each stack, bf16 changed the weights of a tiny adapter by 5 % of their norm after four steps. For comparison:
    in bf16, another size of the micro-batch changed these weights by 25 %
    (tests/proof/training/test_frozen_base_dtype.py).
    """
    fp32 = "model.dtype" not in of.values or of.values["model.dtype"].origin.kind == DEFAULT
    rounds = of.get("strategy") == "zero3"  # no note: under ZeRO-3, DeepSpeed loads weights in the run's precision
    if fp32 and not rounds and of.get("precision") == "bf16" and "lora.bits" not in of.values:
        message = "the spec states no dtype of the frozen base: xpc takes fp32; linear layers compute with bf16 copies"
        help = (
            "`model(dtype=fp32)` states this choice; with `model(dtype=bf16)`, the fp32 weights are not kept, and the "
        )
        help += "layers' outputs are added in bf16"
        of.note("model.dtype", message, help)


def own_defaults(of: OpenSpec, method: str) -> None:
    """Set the method's own settings that the spec does not state. Each gets the default of its argument in the target's
    configuration class, such as GRPOConfig.
    """
    base = of.stack.base_arguments(of.stack.config(method))
    why = f"the default of {of.stack.name}"
    own = METHODS[method].defaults
    rate = own.get("optimizer.lr", base["learning_rate"])
    of.default("optimizer.lr", rate, f"{OURS if 'optimizer.lr' in own else why} for {method}")
    for row in TABLE:
        if method not in row.methods or row.path in of.values or row.default is not None:
            continue
        if not row.path.startswith("method."):
            continue
        block = row.path.rpartition(".")[0]
        if block != "method" and of.get(path_of(block)) is not True:
            continue
        value = own.get(row.path, _value(of, row, method, base))
        if value is not None:
            of.set(row.path, value, WHY.get(row.path) or (OURS if row.path in own else why), DEFAULT)
    if METHODS[method].generates:
        prompt, completion = of.get("method.max_prompt"), of.get("method.max_completion") or 0
        of.set("batch.seq", (prompt or USUAL_PROMPT) + completion, f"{prompt or USUAL_PROMPT} + {completion}")


def _value(of: OpenSpec, row: Setting, method: str, base: dict[str, Json]) -> object:
    if row.path in ("method.steps_per_generation", "method.rewards"):
        # both have no default: the accumulation decides `steps_per_generation`, and the spec must state `rewards`
        return None
    value = base.get(next((name for name in row.args if name in base), ""))
    seq = of.get("batch.seq")
    if row.path == "method.max_prompt" and method in ROOM_AFTER_PROMPT and isinstance(value, int) and seq:
        return value if value < seq else max(1, seq // 2)
    if row.path == "method.teacher_dtype":
        return of.get("model.dtype") or BY_PATH["model.dtype"].default
    if row.path == "method.tool_timeout":
        return TOOL_TIMEOUT if of.get("method.tools") or of.get("method.environment") else None
    if row.path == "method.loss":
        names = value if isinstance(value, list) else [value]
        losses = of.stack.losses(method)
        ours = {here: name for name, here in losses.items()} | {
            here: here for here in losses.values() if here in losses
        }
        return tuple(Weighted(ours[str(name)]) for name in names if name is not None) or None
    if row.path == "method.scale_rewards" and isinstance(value, bool):
        return "group" if value else "none"
    if row.path == "method.vllm.gpu_memory" and isinstance(value, float):
        return Amount("share", value)
    if row.path == "method.vllm.timeout" and isinstance(value, float):
        return int(value)
    return value


def group(of: OpenSpec) -> int:
    """The number of completions per prompt. All completions of a prompt belong to the same optimizer step. 1 for
    methods without groups.
    """
    return (of.get("method.generations") or 1) if of.method.grouped else 1


def batch(of: OpenSpec, world: int, micro: int) -> None:
    """Set two values that follow from the batch, for a method that compares rewards in groups: `steps_per_generation`
    (micro-batches per generation), and an evaluation micro-batch that has complete groups of completions.
    """
    of.default("method.steps_per_generation", of.get("batch.accum"), "the accumulation")
    size = group(of)
    if (micro * world) % size:
        least = size // gcd(size, world)
        of.default("eval.micro", least * -(-micro // least), f"whole groups of {size} completions")


def memory(of: OpenSpec, inputs: MemoryInputs) -> MemoryInputs:
    """Return the quantities for the memory estimate (`inputs`), adjusted to the adapter and the method. A run with
    adapters has no separate reference model, because the reference is the trained model with its adapters switched off.
    """
    bits, dtype = of.get("lora.bits"), of.get("model.dtype") or "fp32"
    weight = packed_bytes(bits, of.flag("lora.double_quant")) if bits else 4.0 if dtype == "fp32" else 2.0
    method, rank = of.method, _rank(of, inputs)
    saved = of.get("lora.modules_to_save")
    rows = tables(saved) if isinstance(saved, tuple) else 0
    facts = inputs.facts
    modules = 0 if facts is None or not rank else rows * facts.vocab * facts.hidden
    references = 0 if rank else method.references(of.get)
    sizes = None if of.teacher is None else of.teacher.facts
    teacher = 0.0 if sizes is None else sizes.params * (4.0 if of.get("method.teacher_dtype") == "fp32" else 2.0)
    return evolve(
        inputs,
        rank=rank,
        modules=modules,
        weight=weight,
        references=references,
        teacher=teacher,
        sequences=method.sequences,
    )


def _rank(of: OpenSpec, inputs: MemoryInputs) -> int:
    """The rank at which LoRA has at least as many parameters as the spec's adapters. The memory estimate treats every
    kind of adapter as LoRA of this rank.

    In OFT, a block of n inputs has a rotation with n(n-1)/2 parameters. LoHa has two pairs of matrices, so its rank
    counts twice. VeRA's vectors and shared matrices together have fewer parameters than LoRA of rank 2 on every layer.
    """
    rank = of.get("lora.rank") or 0
    if of.flag("vera"):
        return min(rank, 2)
    if not of.flag("oft"):
        return rank * (2 if of.flag("loha") else 1)
    block = of.get("lora.block_size") or 0
    if rank and inputs.facts is not None:
        block = inputs.facts.hidden // rank
    return max(1, block // 2)
