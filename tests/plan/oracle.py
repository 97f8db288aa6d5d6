"""Measure the bytes per token that autograd saves in one layer of a model family, with real models.

A model of two periods of the family's layer pattern is built on the CPU, at several widths. The storages that
`torch.autograd.graph.saved_tensors_hooks` sees in the second period are added up. Each storage counts once, and
parameters do not count. So the sum is what one more period needs. One part of the sum is linear in the length of the
sequence, another part is quadratic. Each part is a simple combination of sizes such as hidden size, MLP width and
heads, with the same coefficients at all widths. `make coefficients` writes the coefficients to the coefficients.json of
the stack whose libraries were measured.

Two differences between CPU and GPU are corrected. On the CPU, dropout saves noise in the input's dtype, but CUDA's
kernel saves one byte per element, so `torch.native_dropout` is used instead. Attention with dropout has no fused kernel
on the CPU. So attention's dropout is turned off here; on a GPU, the fused kernel saves nothing for the dropout.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from family_models import LATENT, MIXTURES, ROTATED_HALF, adapted, built, facts, only_norms, packed, period, shapes

LENGTHS = (64, 96, 192)
WITHOUT_SDPA = ("gemma2", "gpt_oss")
"""Families that transformers runs only with eager or flash attention, because they have capped logits or attention
sinks.
"""

WITHOUT_ROTATIONS = (*MIXTURES, *LATENT, "gpt2")
"""Families for whose layers peft makes no rotations, or rotations of another shape. These families have stacked
experts, `Conv1D` layers, or latent attention. In the latter, the layer `kv_b_proj` cannot be rotated (XP234).
"""

EXACT = 1e-9
"""A smaller relative error comes from rounding, and not from bytes that the plan does not count."""

OWN_ATTENTION = ("falcon", "gpt_bigcode")
"""Families for which transformers 4.52 has a separate class for each kind of attention. Our function cannot replace
flash attention in these classes.
"""


@contextmanager
def cuda_dropout() -> Iterator[None]:
    """Replace each dropout by a function that saves as many bytes as CUDA's dropout kernel does."""
    real = torch.nn.functional.dropout

    def native(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        return torch.native_dropout(input, p, training)[0] if training and p else input

    torch.nn.functional.dropout = native
    try:
        yield
    finally:
        torch.nn.functional.dropout = real


def saved(model: Any, first: int, length: int, padded: bool, autocast: bool) -> int:
    """Run one sequence through the model. Return the bytes that autograd saves in layer `first` and all later layers.
    Parameters do not count, and each storage counts once.
    """
    storages = [one.untyped_storage() for one in (*model.parameters(), *model.buffers())]
    # The dict keeps the storages alive. Otherwise torch could give the address of a freed storage to a new storage.
    own = {one.data_ptr(): one for one in storages}
    kept: dict[int, tuple[int, torch.Tensor]] = {}
    before: list[int] = []
    after: list[int] = []

    def keep(given: torch.Tensor) -> torch.Tensor:
        tensor = given.detach()  # a tensor that refers to its own graph node would never be freed
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
    # A collator always passes a mask, so the measurement does, too. Without a mask, transformers 4.57 tests for packed
    # rows and makes a mask itself.
    mask = torch.ones_like(ids)
    if padded:
        mask[:, : length // 4] = 0
    half = torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), half, cuda_dropout():
        model(input_ids=ids, attention_mask=mask, use_cache=False)
    for hook in hooks:
        hook.remove()
    return after[0] - before[0]


def residual(model: Any, first: int, length: int, padded: bool, autocast: bool) -> int:
    """The bytes of the inputs of all layers before layer `first`. All layers have inputs of equal size, so the size of
    one input is multiplied by the number of these layers.
    """
    found: list[int] = []
    layers = stack(model)
    hook = layers[first].register_forward_pre_hook(
        lambda _, args, kwargs: found.append((args or tuple(kwargs.values()))[0].nbytes), with_kwargs=True
    )
    saved(model, first, length, padded, autocast)
    hook.remove()
    return found[0] * first


def stack(model: Any) -> torch.nn.ModuleList:
    """The decoder's layers: the outermost module list of the model. Inside the layers, there may be other lists, such
    as a list of experts.
    """
    return next(one for one in model.modules() if isinstance(one, torch.nn.ModuleList))


PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16": {}, "fp32": {"dtype": torch.float32}, "amp": {"dtype": torch.float32, "autocast": True},
}  # fmt: skip
BASES: dict[str, dict[str, Any]] = {
    "bf16": {}, "fp32": {"dtype": torch.float32}, "amp": {"autocast": True},
    "amp32": {"dtype": torch.float32, "autocast": True}, "wide": {"packed": True, "autocast": True},
    "norms": {"packed": True, "norms": True, "autocast": True},
}  # fmt: skip
"""Kinds of base models that are measured with adapters. Each kind has a dtype; it may run under autocast, and it may be
quantized to 4 bits (`packed`).
"""
KINDS: dict[str, dict[str, Any]] = {
    "sdpa": {}, "mask": {"padded": True}, "eager": {"attention": "eager"}, "flash": {"attention": "fused"},
}  # fmt: skip
"""Kinds of attention. "sdpa" is torch's attention without a mask, "mask" is torch's with the mask of a padded batch,
"eager" is transformers' own, and "flash" is flash attention.
"""


def expands_keys() -> bool:
    """For models with grouped-query attention: whether this version of transformers repeats keys and values for every
    query head before it calls torch's own attention (sdpa). Versions before 4.54 do.

    Flash attention gets the keys without repetitions. So in these versions, autograd saves fewer bytes with flash
    attention than with torch's own attention.
    """
    from transformers.integrations import sdpa_attention

    return not hasattr(sdpa_attention, "use_gqa_in_sdpa")


def casts_norms() -> bool:
    """Whether this version of TRL converts the norms of a 4-bit base to float32 for bf16 runs. Versions before 1.0
    do.
    """
    from importlib.metadata import version

    return version("trl").startswith("0.")


def modes(family: str) -> dict[str, dict[str, Any]]:
    """The modes in which a family can be trained, as `trained/precision/attention`.

    `amp` computes in bf16 under autocast: full training of float32 weights, or float32 adapters on a bf16 base. `amp32`
    is the same with a float32 base. `wide` has a 4-bit base, and all weights that are not quantized are float32; in
    `norms`, only the norms are float32. The mode `residual/norms` measures what recomputation keeps of a layer in
    `norms`. Flash attention is measured only for families without torch's own attention, or if torch's own attention
    saves a different number of bytes. Adapters are measured with only one kind of attention, because the effect of
    another kind is known from full training. The bytes of DoRA and rotations follow from LoRA's bytes (`adapters.py`),
    except for a float32 base. PEFT merges adapters into stacks of experts, which costs bytes per layer and not per
    token (`Adapters.merged`).
    """
    capped = family in WITHOUT_SDPA
    kinds = (("eager", "flash") if family == "gemma2" else ("eager",)) if capped else ("sdpa", "mask", "eager")
    if family in LATENT:
        ours = {"attention": "efficient"}  # the CPU's kernels save other tensors than CUDA's
        return _modes(family, kinds, {**KINDS, "sdpa": ours, "mask": {**KINDS["mask"], **ours}})
    if not capped and expands_keys() and family not in OWN_ATTENTION:
        kinds = (*kinds, "flash")
    return _modes(family, kinds, KINDS)


def _modes(family: str, kinds: tuple[str, ...], made: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Map each mode in which a family can be trained with these kinds of attention to a description of how it is
    measured. `made` has the descriptions of other modes.
    """
    out: dict[str, dict[str, Any]] = {
        f"full/{name}/{kind}": {**precision, **made[kind]} for name, precision in PRECISIONS.items() for kind in kinds
    }
    for sites in ("qv", "qkvo", "all"):
        for name, precision in BASES.items():
            out[f"lora-{sites}/{name}/{kinds[0]}"] = {
                "lora": (sites, 0.0, name != "bf16"), **precision, **made[kinds[0]]
            }  # fmt: skip
        for kind in [
            *(["dora"] if family not in MIXTURES else []),
            *(["oft"] if family not in WITHOUT_ROTATIONS else []),
        ]:
            out[f"{kind}-{sites}/amp32/{kinds[0]}"] = {
                "lora": (sites, 0.0, True, kind), **BASES["amp32"], **made[kinds[0]]
            }  # fmt: skip
    if not casts_norms():
        return {mode: how for mode, how in out.items() if "/norms/" not in mode}
    settled = {"lora": ("qv", 0.0, True), **BASES["norms"], **made[kinds[0]]}
    out[f"residual/norms/{kinds[0]}"] = {**settled, "residual": True}
    return out


def measure(
    family: str, shape: tuple[int, ...], rank: int, requested: dict[str, dict[str, Any]], window: int = 1024
) -> dict[str, list[int]]:
    """For each mode, the bytes that one period of the model's layers saves, as a list with a number for each sequence
    length. Of two periods, the second one is measured.
    """
    out: dict[str, list[int]] = {}
    # one model serves several modes, except in families whose attention cannot be replaced after the model is built
    whole: dict[str, Any] = {}
    for mode in sorted(requested, key=lambda name: ("lora" in requested[name], "bf16" in name)):
        how = requested[mode]
        dtype, attention = how.get("dtype", torch.bfloat16), how.get("attention", "sdpa")
        if "lora" in how:
            plain = built(family, shape, 2, attention, dtype, window)
            plain = packed(plain) if how.get("packed") else plain
            model = adapted(plain, how["lora"][0], rank, *how["lora"][1:])
            model = only_norms(model) if how.get("norms") else model
        else:
            if attention not in whole:
                whole[attention] = built(family, shape, 2, attention, dtype, window)
            model = whole[attention].to(dtype)
        count = residual if how.get("residual") else saved
        out[mode] = [
            count(model, period(family), n, how.get("padded", False), how.get("autocast", False)) for n in LENGTHS
        ]
    gc.collect()  # hooks and graphs refer to each other, so only the garbage collector frees them and the saved tensors
    return out


def failure(family: str, mode: str, how: dict[str, Any]) -> str | None:
    """The error of the libraries in this mode; None if they do not fail."""
    try:
        measure(family, shapes(family)[0], 4, {mode: how})
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"[:100]
    return None


def growth(measured: list[int]) -> tuple[float, float]:
    """Describe the measured bytes as a function of the length. Return two numbers: the coefficient of the length, and
    the coefficient of the length squared. A constant part (weights converted to another dtype) is dropped.
    """
    one, two, three = LENGTHS
    slopes = (measured[1] - measured[0]) / (two - one), (measured[2] - measured[1]) / (three - two)
    quadratic = (slopes[1] - slopes[0]) / (three - one)
    return slopes[0] - quadratic * (one + two), quadratic


def solve(rows: list[dict[str, float]], values: list[float]) -> tuple[dict[str, float], float]:
    """Express the values as a sum of sizes. Return a pair: a coefficient for each size, and the largest relative error
    of the sum.

    A size gets no coefficient if, in every shape, it is a combination of earlier sizes in the list. For example, the
    width of the queries gets none if it always equals the hidden size. A coefficient should be a multiple of 1/4,
    because it is the bytes of an element times a simple fraction.
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
        # Coefficients that are multiples of 1/4 fit worse than the exact solution, so three decimals are kept. The
        # returned `left` is the largest error of the fit.
        rounded = numpy.round(found, 3)
    left = float(numpy.max(numpy.abs(chosen @ rounded - values) / numpy.maximum(numpy.abs(values), 1.0)))
    return {name: float(value) for name, value in zip(names, rounded) if value}, left


def off_by(family: str, shape: tuple[int, ...], rank: int, rows: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The relative error of the prediction for each mode: measured / predicted - 1. Both numbers are the bytes that one
    period of the layer pattern saves for the backward pass, at the largest of LENGTHS.
    """
    from xpc.compiler.plan.coefficients import saved as predicted

    known, length, how = facts(family, shape), LENGTHS[-1], modes(family)
    out = {}
    for mode, measured in measure(family, shape, rank, {mode: how[mode] for mode in rows}).items():
        linear, quadratic = growth(measured)
        expected = predicted(rows[mode], known, length, 0 if mode.startswith("full") else rank) * period(family)
        out[mode] = (linear + quadratic * length) / expected - 1
    return out


def holds(family: str, rows: Mapping[str, Mapping[str, float]], requested: Mapping[str, Any]) -> bool:
    """Whether coefficients that were measured with other library versions also hold for the installed ones. They hold
    if the installed versions have the same modes, and if the predictions at two shapes are exact to the byte.
    """
    return rows.keys() == requested.keys() and not any(
        abs(off) > EXACT for shape in shapes(family)[3:5] for off in off_by(family, shape, 6, rows).values()
    )


def coefficients(family: str, requested: dict[str, dict[str, Any]]) -> dict[str, tuple[dict[str, float], float]]:
    """The coefficients of a family in each mode, and the largest relative error at any shape."""
    from xpc.compiler.plan.coefficients import sizes

    measured = []
    for number, shape in enumerate(shapes(family)):
        known = facts(family, shape)
        rank = (4, 8, 16, 6)[number % 4]
        measured.append((sizes(known, rank), measure(family, shape, rank, requested)))
    out = {}
    for mode in requested:
        rows = [{name: used[name] for name in names(family, mode)} for used, _ in measured]
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
    """The names of model sizes, such as `hidden`, on which the bytes of a layer in this mode may depend."""
    out = ["hidden", "intermediate", "heads x width", "kv heads x width", "heads", "kv heads", "one"]
    if family in MIXTURES:
        out[1:2] = ["chosen x hidden", "chosen x intermediate"]
        out[-1:] = ["experts", "chosen", "one"]
    if family in LATENT:
        out.remove("kv heads")
        out.remove("kv heads x width")
        out[-1:-1] = ["heads x value width", "heads x rotated", "query rank", "latent", "rotated"]
        out[1:1] = ["shared"] if family in MIXTURES else []
    if family in ROTATED_HALF:
        out[-1:] = ["head width", "one"]
    more = ["chosen x rank"] if family in MIXTURES and "lora-all" in mode else []
    return tuple([*out, *more, "rank"] if mode.startswith(("lora", "dora")) else out)
