"""Published measurements as input of the plan. Each row of measured/memory_points.jsonl becomes a `Load`."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256
from typing import Any

from xpc.compiler.plan import packed_bytes
from xpc.compiler.plan.load import Adapters, Load, UnknownMemory
from xpc.compiler.plan.memory import Memory, memory
from xpc.compiler.registry import find_model
from xpc.compiler.registry.linear_layers import ATTENTION, linear_layers, lora_parameters
from xpc.compiler.registry.types import ModelFacts
from xpc.grammar.record import evolve

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "measured")
Row = dict[str, Any]
FAMILIES = {
    "qwen2.5": "qwen2", "qwen-": "qwen2", "qwen2": "qwen2", "qwen3": "qwen3", "mistral": "mistral",
    "granite": "granite", "gemma-3": "gemma3_text", "gemma-2": "gemma2", "gemma": "gemma", "mixtral": "mixtral",
    "phi-3": "phi3",
    "olmo-2": "olmo2", "starcoder2": "starcoder2", "falcon": "falcon", "opt": "opt", "santacoder": "gpt_bigcode",
    "gpt2": "gpt2", "pythia": "gpt_neox",
}  # fmt: skip
"""Maps the beginning of a measured model's name to the model's family. Any other model counts as Llama. Qwen (1) has
the same layers as Qwen2.
"""
LOSSES = {"nll": "kept", "nll_old": "shifted", "fast_ce": "in_place", "flce": "fused"}
TARGETS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "o"}
SITES = {"qv": ("q", "v", "qkv"), "qkvo": ATTENTION, "all": (*ATTENTION, "gate", "up", "gate_up", "down")}
"""Maps names in coefficients.json to the linear layers that have adapters."""
GPTQ = 0.5 + 2.5 / 128
"""Bytes per weight quantized by GPTQ: half a byte, plus an fp16 scale and a packed zero point for 128 weights."""
NESTED = ("fms_main", "fms_liger")
"""Groups of measured runs whose 4-bit weights are quantized twice: their scales are quantized, too
(fms_acceleration_peft, framework_plugin_bnb.py).
"""


def rows(name: str) -> list[Row]:
    """The rows of a JSONL file."""
    with open(os.path.join(HERE, name), encoding="utf-8") as handle:
        return [json.loads(line) for line in handle]


def aside(row: Row) -> bool:
    """The measurements that were collected last have two halves, and nothing is fitted to the second one. Whether a row
    belongs to this half is decided by the last byte of the digest of the row's source.

    The rows were divided in this way before any of them was predicted.
    """
    return sha256(row["source"].encode()).digest()[-1] % 2 == 0


def contradicts(row: Row) -> str:
    """The reason why a measurement is left out of all comparisons: fields are missing, or contradict each other. Empty
    if the measurement is used.
    """
    notes = row["notes"]
    if "ZeRO" in notes and row["strategy"] == "single":
        return "the notes of the measurement say ZeRO-2 and fp16, but its fields say one process in bf16"
    if "yaml not in repo" in notes:
        return (
            "the run's configuration is not public, and 8.1 GiB are less than weights, gradients and AdamW's states "
            "in bf16 (8 bytes a parameter)"
        )
    if row["metric"] == "torch_reserved" and "variable-length" in notes:
        return ""
    if row["group"] == "swift_full" and row["seq_len"] == 2048:
        return "the run with 2,048 tokens used more memory than the same run with 4,096 tokens"
    return ""


def facts(row: Row) -> ModelFacts:
    """The sizes of a measured model. The parameters of one layer are the model's parameters without the embeddings,
    divided by the number of layers.
    """
    tables = row["vocab"] * row["hidden"] * (1 if row["tie_embeddings"] else 2)
    return ModelFacts(
        alias=row["model"], id=row["model"], model_type=family(row), params=row["params"], layers=row["layers"],
        hidden=row["hidden"], intermediate=row["intermediate"], heads=row["heads"], kv_heads=row["kv_heads"],
        head_dim=row["head_dim"], vocab=row["vocab"], context=row["seq_len"], tied=row["tie_embeddings"],
        dtype="bfloat16", chat=False, gated=False, gated_mlp=row["gated_mlp"],
        layer_params=(row["params"] - tables) // row["layers"],
    )  # fmt: skip


def sizes(row: Row) -> ModelFacts:
    """The registry's sizes of a measured model. If the registry does not have the model, the sizes in the row."""
    if "sizes" in row:
        given = row["sizes"]
        tables = given["vocab"] * given["hidden"] * (1 if given["tied"] else 2)
        return ModelFacts(
            alias=row["model"], id=row["model"], context=row["length"], dtype="bfloat16", chat=False, gated=False,
            gated_mlp=True, layer_params=(given["params"] - tables) // given["layers"], **given,
        )  # fmt: skip
    facts = find_model(row["model"])
    assert facts is not None, row["model"]
    return facts


def family(row: Row) -> str:
    """The model family whose layers a measured model has."""
    name = row["model"].lower()
    if row["stack"] == "litgpt":
        return "llama" if row["gated_mlp"] else "gpt_neox"
    return next((value for start, value in FAMILIES.items() if name.startswith(start)), "llama")


def load(row: Row) -> Load:
    """The run of a measurement, as the plan's memory formulas take it."""
    sizes = facts(row)
    half = row["precision"] != "ds_fp32"
    fsdp, deepspeed = row["strategy"] == "fsdp", row["strategy"].startswith("zero")
    pure = row["precision"] in ("bf16_pure", "ds_bf16")
    weight = 4.0 if not pure else 2.0
    # prepare_model_for_kbit_training of PEFT (peft utils/other.py) converts all weights to float32 that bitsandbytes
    # has not quantized. Without autocast, the residual stream and the logits are float32 as a result.
    upcast = row["quant"] == "nf4" and row["adapter_dtype"] == "fp32" and not row["autocast"]
    element = 2 if half and not upcast else 4
    adapters, trained = None, float(sizes.params)
    if row["lora_r"]:
        adapters, trained = lora(row, sizes), 0.0
        weight = 2.0
    if row["quant"]:
        tables = sizes.vocab * sizes.hidden * (1 if sizes.tied else 2)
        weight = (tables * element + (sizes.params - tables) * _packed(row)) / sizes.params
    stage = 3 if fsdp else int(row["strategy"][-1]) if deepspeed else 0
    own = 4.0 if deepspeed or not pure else 2.0
    old = row["loss"] == "nll_old"
    return Load(
        facts=sizes, family=family(row), engine="fsdp" if fsdp else "deepspeed" if deepspeed else "none", stage=stage,
        world=row["world_size"], shard=row["world_size"], offload=0, element=element, weight=weight,
        amp=half and not upcast and adapters is not None and adapters.element == 4,
        moments=2 * (own if adapters is None else adapters.element),
        temporary=0.0 if deepspeed else own if adapters is None else float(adapters.element),
        micro=row["micro_batch"], length=row["seq_len"], accumulates=row["grad_accum"] > 1,
        checkpointing=row["grad_ckpt"], attention="flash" if row["flash_attn"] or old else "sdpa",
        loss=loss(row), trained=trained, adapters=adapters, fsdp1=fsdp,
    )  # fmt: skip


def planned(load: Load) -> Memory | None:
    """The planned memory of a run; None if the plan does not know it."""
    with suppress(UnknownMemory):
        return memory(load)
    return None


def _packed(row: Row) -> float:
    """The bytes that a measured run stores for each quantized weight."""
    if row["quant"] == "gptq4":
        return GPTQ
    return packed_bytes(8 if row["quant"] == "int8" else 4, row["group"] in NESTED)


def loss(row: Row) -> str:
    """How a measured run computes its loss: with an fp32 copy of the logits, without such a copy (GPT-BigCode), or in
    chunks (litgpt).
    """
    if row["stack"] == "litgpt":
        return "chunks"
    if family(row) == "gpt_bigcode":
        return {"nll": "half", "fast_ce": "half_in_place"}.get(row["loss"], LOSSES[row["loss"]])
    return LOSSES[row["loss"]]


def lora(row: Row, sizes: ModelFacts) -> Adapters:
    """The adapters of a measured run, with the measured number of parameters. The plan has coefficients for some sets
    of target modules; the result has the set that is most similar to the run's set.
    """
    targets = row["lora_targets"]
    standing = {TARGETS[name] for name in targets if name in TARGETS}
    if "mlp" in targets:
        standing.update(("gate", "up", "gate_up", "down"))
    # measurements name q, k and v separately, even if the family fuses them
    linear = [one for one in linear_layers(evolve(sizes, model_type="llama")) if one.site in standing]
    params = lora_parameters(sizes, row["lora_r"], linear)
    if "lm_head" in targets:
        params += row["lora_r"] * (sizes.hidden + sizes.vocab)
    sites = "all" if "mlp" in targets else "qkvo" if "o_proj" in targets or "k_proj" in targets else "qv"
    element = 4 if row["adapter_dtype"] == "fp32" else 2
    # A fused kernel of fms computes dropout and adapter together, and saves the activations of neither.
    fused = "foak" in row["notes"]
    dropout, bits = 0.0 if fused else row["lora_dropout"], {"int8": 8}.get(row["quant"], 4) if row["quant"] else 0
    return Adapters(
        sites, row["lora_r"], float(params), element, tuple(linear), dropout, bits=bits, nested=row["group"] in NESTED
    )
