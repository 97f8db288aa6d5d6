"""What autograd saves in one layer of a model family: counted on real models, as bytes a token.

A model of two periods of the family's layer pattern is built on the CPU, at several widths, and the storages that
`torch.autograd.graph.saved_tensors_hooks` sees in the second period are added up, each once and without parameters:
what a second period adds to the first. Its growth with the length has a linear and a quadratic part; across
the widths these are whole combinations of hidden size, MLP width, heads and so on: the coefficients of
compiler/plan/coefficients.json. `make coefficients` writes them anew.

Two things are not as on a GPU, and are put right: a dropout on the CPU saves noise of the input's dtype, where CUDA's
kernel saves one byte an element (`torch.native_dropout` is put in its place), and attention with a dropout has no fused
kernel on the CPU, so that attention's own dropout is turned off (a fused kernel saves nothing for it).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import transformers

from xpc.compiler.registry import facts_from_config
from xpc.compiler.registry.types import ModelFacts

LENGTHS = (64, 96, 192)
SHAPES = (
    # hidden, intermediate, heads, kv heads, head width, experts, experts a token
    (64, 96, 4, 2, 16, 4, 2),
    (96, 96, 4, 2, 24, 4, 2),
    (64, 160, 4, 2, 16, 4, 2),
    (96, 224, 4, 4, 32, 4, 1),
    (96, 128, 8, 2, 16, 6, 2),
    (128, 192, 8, 8, 16, 6, 3),
    (128, 320, 4, 2, 40, 8, 2),
    (160, 192, 8, 2, 24, 8, 4),
    (192, 256, 6, 3, 32, 8, 2),
    (128, 256, 2, 2, 64, 4, 3),
    (64, 128, 4, 4, 24, 8, 1),
    (160, 160, 6, 3, 16, 4, 4),
)
"""Widths with the ratios of published models and without them: the coefficients must hold for all. None has a single
head of keys, which torch need not copy for every head under a mask: such a model keeps less than they say."""
ROUND = ((64, 96), (64, 160), (96, 224), (128, 192), (128, 320), (192, 256))
"""Shapes for families whose heads fill the hidden size and all have keys: hidden and intermediate."""


def config(family: str, shape: tuple[int, ...], periods: int) -> dict[str, Any]:
    """The keys of a tiny configuration of a family, with `periods` times its pattern of layers."""
    hidden, intermediate, heads, kv, width, experts, each = shape
    out: dict[str, Any] = {
        "model_type": family, "hidden_size": hidden, "intermediate_size": intermediate, "num_attention_heads": heads,
        "num_key_value_heads": kv, "vocab_size": 128, "max_position_embeddings": 256, "head_dim": width,
        "num_hidden_layers": periods * period(family),
    }  # fmt: skip
    if family in WIDE:
        out.update(num_key_value_heads=heads, head_dim=hidden // heads)
    if family == "gpt2":
        out = {"model_type": family, "n_embd": hidden, "n_inner": intermediate, "n_head": heads, "n_positions": 256,
               "n_layer": periods, "vocab_size": 128}  # fmt: skip
    elif family == "opt":
        out.update(ffn_dim=intermediate, word_embed_proj_dim=hidden)
    elif family == "falcon":
        out.update(ffn_hidden_size=intermediate, num_kv_heads=kv, new_decoder_architecture=True)
    elif family == "mixtral":
        out.update(num_local_experts=experts, num_experts_per_tok=each, sliding_window=None)
    elif family == "qwen3_moe":
        out.update(num_experts=experts, num_experts_per_tok=each, moe_intermediate_size=intermediate)
    elif family in WINDOWED:
        out.update(sliding_window=16)
    return out


WIDE = ("gpt2", "gpt_neox", "opt", "falcon", "glm", "phi3")
"""Families whose configuration has no width of a head of its own, or no grouped keys."""
WINDOWED = ("gemma2", "gemma3_text", "smollm3")
"""Families of which some layers see a window."""
MIXTURES = ("mixtral", "qwen3_moe")
PERIODS = {"gemma3_text": 6, "gemma2": 2, "smollm3": 4}


def period(family: str) -> int:
    """Layers after which a family's pattern begins anew."""
    return PERIODS.get(family, 1)


def facts(family: str, shape: tuple[int, ...], periods: int = 1) -> ModelFacts | str:
    """What the registry's closed forms make of the tiny configuration; a sentence where they have none."""
    return facts_from_config(config(family, shape, periods), family, family)


def built(family: str, shape: tuple[int, ...], periods: int, attention: str, dtype: torch.dtype) -> Any:
    """The decoder without its head."""
    keys = config(family, shape, periods)
    made = transformers.AutoConfig.for_model(keys.pop("model_type"), pad_token_id=0, **keys)
    for name in vars(made):
        if "att" in name and "drop" in name:
            setattr(made, name, 0.0)
    torch.manual_seed(0)
    return transformers.AutoModel.from_config(made, attn_implementation=attention).to(dtype).train()


TARGETS = {
    "qv": ("q_proj", "v_proj", "query_key_value", "c_attn", "qkv_proj"),
    "qkvo": ("q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "qkv_proj", "query_key_value", "c_attn", "dense",
             "self_attn.dense"),
    "all": "all-linear",
}  # fmt: skip


def adapted(model: Any, targets: str, rank: int, dropout: float, fp32: bool) -> Any:
    """The model with LoRA on the targets; adapters of float32, as PEFT makes them of a base in half precision."""
    import peft

    made = TARGETS[targets]
    out = peft.get_peft_model(
        model,
        peft.LoraConfig(r=rank, lora_dropout=dropout, target_modules=made if isinstance(made, str) else list(made)),
        autocast_adapter_dtype=fp32,
    )
    if not fp32:
        out = out.to(torch.bfloat16)
    return out


@contextmanager
def cuda_dropout() -> Iterator[None]:
    """Dropouts that save what CUDA's kernel saves."""
    real = torch.nn.functional.dropout

    def native(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        return torch.native_dropout(input, p, training)[0] if training and p else input

    torch.nn.functional.dropout = native
    try:
        yield
    finally:
        torch.nn.functional.dropout = real


def saved(model: Any, first: int, length: int, padded: bool, autocast: bool) -> int:
    """Bytes that a forward pass of one sequence keeps from layer `first` on, parameters left out, each storage once."""
    own = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    kept: dict[int, tuple[int, torch.Tensor]] = {}
    before: list[int] = []
    after: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    def total() -> int:
        return sum(size for size, _ in kept.values())

    layers = stack(model)
    hooks = (
        layers[first].register_forward_pre_hook(lambda *_: before.append(total())),
        layers[-1].register_forward_hook(lambda *_: after.append(total())),
    )
    ids = torch.randint(1, 127, (1, length))
    mask = torch.ones_like(ids)
    mask[:, : length // 4] = 0
    half = torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), half, cuda_dropout():
        model(input_ids=ids, attention_mask=mask if padded else None, use_cache=False)
    for hook in hooks:
        hook.remove()
    return after[0] - before[0]


def stack(model: Any) -> torch.nn.ModuleList:
    """The decoder's layers: the longest list of modules."""
    return max((one for one in model.modules() if isinstance(one, torch.nn.ModuleList)), key=len)


MODES: dict[str, dict[str, Any]] = {
    "full/bf16/sdpa": {},
    "full/fp32/sdpa": {"dtype": torch.float32},
    "full/amp/sdpa": {"dtype": torch.float32, "autocast": True},
    "full/bf16/mask": {"padded": True},
    "full/fp32/mask": {"dtype": torch.float32, "padded": True},
    "full/amp/mask": {"dtype": torch.float32, "autocast": True, "padded": True},
    "full/bf16/eager": {"attention": "eager"},
    "full/fp32/eager": {"attention": "eager", "dtype": torch.float32},
    "full/amp/eager": {"attention": "eager", "dtype": torch.float32, "autocast": True},
    **{
        f"lora-{sites}/{name}/sdpa": {"lora": (sites, 0.0, name == "amp"), **more}
        for sites in ("qv", "qkvo", "all")
        for name, more in (("bf16", {}), ("amp", {"autocast": True}))
    },
    "lora-all-dropout/amp/sdpa": {"lora": ("all", 0.05, True), "autocast": True},
}
"""What is trained / in which precision / with which attention. `amp` computes in bf16 under autocast: full training of
float32 weights, or float32 adapters of a bf16 base. `mask`: sdpa with a batch that is padded."""


def measure(family: str, shape: tuple[int, ...], rank: int, modes: list[str]) -> dict[str, list[int]]:
    """Bytes of one period, the second of two, in each mode at each of the lengths."""
    out: dict[str, list[int]] = {}
    whole = None
    for mode in sorted(modes, key=lambda name: ("lora" in name, "bf16" in name)):
        how = MODES[mode]
        dtype, attention = how.get("dtype", torch.bfloat16), how.get("attention", "sdpa")
        if "lora" in how:
            model = adapted(built(family, shape, 2, attention, dtype), how["lora"][0], rank, *how["lora"][1:])
        else:
            whole = model = (built(family, shape, 2, "sdpa", dtype) if whole is None else whole).to(dtype)
            model.set_attn_implementation(attention)
        out[mode] = [
            saved(model, period(family), n, how.get("padded", False), how.get("autocast", False)) for n in LENGTHS
        ]
    return out


def growth(measured: list[int]) -> tuple[float, float]:
    """The linear and the quadratic part of bytes at the lengths; what does not grow (casts of weights) is left out."""
    one, two, three = LENGTHS
    slopes = (measured[1] - measured[0]) / (two - one), (measured[2] - measured[1]) / (three - two)
    quadratic = (slopes[1] - slopes[0]) / (three - one)
    return slopes[0] - quadratic * (one + two), quadratic


def shapes(family: str) -> tuple[tuple[int, ...], ...]:
    """The shapes that a family is measured in: those that its configuration can have."""
    if family not in WIDE:
        return SHAPES if family in MIXTURES else SHAPES[:9]
    return tuple((h, i, heads, heads, h // heads, 4, 2) for (h, i), heads in zip(ROUND, (4, 2, 4, 8, 4, 6)))


def solve(rows: list[dict[str, float]], values: list[float]) -> tuple[dict[str, float], float]:
    """Coefficients of the sizes that explain the values, and the largest relative difference that is left.

    Sizes that are combinations of others in every shape (queries are as wide as the hidden size) are left out, in the
    order in which they stand. A coefficient is a multiple of a quarter: bytes of an element times a simple share.
    """
    import numpy

    names: list[str] = []
    chosen = numpy.zeros((len(rows), 0))
    for name in rows[0]:
        column = numpy.array([[row[name]] for row in rows], dtype=float)
        wider = numpy.hstack([chosen, column])
        if numpy.linalg.matrix_rank(wider / numpy.maximum(wider.max(0), 1)) > chosen.shape[1]:
            chosen, names = wider, [*names, name]
    found, *_ = numpy.linalg.lstsq(chosen, numpy.array(values), rcond=None)
    rounded = numpy.round(found * 4) / 4
    if numpy.abs(chosen @ rounded - values).max() > numpy.abs(chosen @ found - values).max() + 1e-3:
        rounded = numpy.round(found, 3)  # no whole combination: the bound says how far it is off
    left = float(numpy.max(numpy.abs(chosen @ rounded - values) / numpy.maximum(numpy.abs(values), 1.0)))
    return {name: float(value) for name, value in zip(names, rounded) if value}, left


def coefficients(family: str, modes: list[str]) -> dict[str, tuple[dict[str, float], float]]:
    """The coefficients of a family in each mode, and the largest relative difference at any shape."""
    from xpc.compiler.plan.coefficients import sizes

    measured = []
    for number, shape in enumerate(shapes(family)):
        known = facts(family, shape)
        assert not isinstance(known, str), known
        rank = (4, 8, 16, 6)[number % 4]
        measured.append((sizes(known, rank), measure(family, shape, rank, modes)))
    out = {}
    for mode in modes:
        rows = [{name: size for name, size in used.items() if name in names(family, mode)} for used, _ in measured]
        grown = [growth(found[mode]) for _, found in measured]
        found, left = solve(rows, [one / period(family) for one, _ in grown])
        quadratic = [two / period(family) for _, two in grown]
        if max(map(abs, quadratic)) > 1e-6:
            squares, off = solve([{name: row[name] for name in ("heads", "one")} for row in rows], quadratic)
            found.update({f"{name} x length": value for name, value in squares.items()})
            left = max(left, off)
        out[mode] = found, left
    return out


def names(family: str, mode: str) -> tuple[str, ...]:
    """The sizes that a mode may depend on."""
    dense = ("hidden", "intermediate", "heads x width", "kv heads x width", "heads", "kv heads", "one")
    if family in MIXTURES:
        dense = ("hidden", "chosen x hidden", "chosen x intermediate", "heads x width", "kv heads x width", "heads",
                 "kv heads", "experts", "chosen", "one")  # fmt: skip
    return (*dense, "rank") if mode.startswith("lora") else dense
