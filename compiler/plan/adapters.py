"""Compute the memory of a layer's adapters that is not in the measured table (coefficients.json): temporary tensors,
and the tensors that other kinds of adapters save in addition to those that LoRA saves.

The table was counted on real models with LoRA. DoRA, rotations (OFT) and LoHa save the tensors that LoRA saves, and
further ones. For VeRA, LoHa and MiSS, the sum of the table and this module is an upper bound: the table contains
tensors that these three do not save. VeRA and MiSS do not save the inputs of the adapted layers, and LoHa under
autocast does not save float32 copies of these inputs. Tests count the bytes and the parameters of each kind on the same
models (tests/plan/test_adapters_kept.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.compiler.plan.load import Adapters, Load
from xpc.compiler.registry.linear_layers import Linear, linear_layers
from xpc.compiler.stacks.fused_experts import ALWAYS

ROTATED = {"bf16": 8.0, "fp32": 16.0}
"""Maps the dtype of the computation to the bytes that OFT saves per element of a rotation block. OFT saves four
matrices of the Cayley transform, each with as many elements as the block. With autocast, some of these matrices are in
half precision (`ROTATED_CAST`; peft 0.17 to 0.21, tuners/oft/layer.py).
"""
ROTATED_CAST = 14.0


def component(load: Load) -> str:
    """The name under which the plan lists the bytes that `of_layer` and `in_forward` return."""
    kind = "lora" if load.adapters is None else load.adapters.kind
    return {
        "oft": "rotations", "dora": "norms of adapted weights", "loha": "products of matrices",
    }.get(kind, "merged experts")  # fmt: skip


def of_token(load: Load) -> float:
    """Bytes per token and layer that adapters save in addition to the bytes that LoRA saves; those were measured
    (coefficients.json).
    """
    tuned = load.adapters
    if tuned is None:
        return 0.0
    facts, out = load.facts, 0.0
    if tuned.dropout and tuned.kind != "oft":
        # Dropout saves its mask, one byte per element, and its output. Under autocast, the output is already counted as
        # the input that each adapted layer saves.
        wide = sum(one.inputs * min(1.0, one.count) for one in tuned.linear)
        out += wide * (1.0 if load.amp else 1.0 + load.element)
    if tuned.kind in ("vera", "miss"):
        # The backward pass needs the inputs of trained tensors. VeRA trains two vectors: one scales `rank` numbers, the
        # other the adapter's outputs. MiSS trains a matrix, which multiplies `rank` sums (tuners/vera/layer.py,
        # tuners/miss/layer.py).
        wide = sum(tuned.rank + (one.outputs if tuned.kind == "vera" else 0) for one in tuned.linear)
        out += wide * _computed(load)
    if tuned.kind == "dora" and not load.mode.startswith("dora"):
        # DoRA's magnitudes scale the output of the layer and the output of the adapter's matrices, so autograd saves
        # both outputs (tuners/lora/dora.py).
        given = 4.0 if load.widened else load.element
        out += sum(one.outputs for one in tuned.linear) * (given + load.element)
    if tuned.bits == 8:
        # 8-bit layers save their inputs. An input that another operation saves anyway is not counted again: the input
        # of attention's output layer and, without autocast, the inputs that adapters save.
        again = facts.hidden if load.amp else 0
        mlp = facts.hidden + facts.intermediate if load.amp or tuned.sites != "all" else 0
        out += (again + mlp) * _of_an_input(load)
    return out


def recomputed_too(load: Load) -> float:
    """Bytes per token and layer that recomputation does not free.

    bitsandbytes 0.50 stores the input of an 8-bit layer on the context itself (`MatMul8bitLt`, `ctx.tensors`).
    Non-reentrant recomputation frees only autograd's saved tensors, so it does not free this input.
    """
    tuned, facts = load.adapters, load.facts
    if tuned is None or tuned.bits != 8 or load.reentrant:
        return 0.0
    return (2 * facts.hidden + facts.query_rank + facts.latent + facts.values + facts.intermediate) * _of_an_input(load)


def _of_an_input(load: Load) -> float:
    """Bytes of one element of an 8-bit layer's input: 4 (float32) if the norms are float32 or the run computes in
    float32, otherwise 2.
    """
    return 4.0 if load.widened or load.element == 4 else 2.0


def _computed(load: Load) -> float:
    """The size in bytes of one number in the dtype in which adapters compute: 2 or 4."""
    return 2.0 if load.amp or load.element == 2 else 4.0


def of_layer(load: Load) -> float:
    """The bytes of a layer that do not depend on the number of tokens: OFT's rotations, or copies of experts and of
    their adapters.

    For experts, peft copies the stack of experts, adds the product of each adapter's matrices to the copy, and computes
    with the copy (`ParamWrapper`). The adapters are copied, too. In gpt-oss, autograd keeps two copies, because its
    matrices are not transposed. The bytes were counted on real models (tests/plan/test_experts.py).
    """
    tuned = load.adapters
    if tuned is None:
        return 0.0
    if tuned.kind == "oft":
        return tuned.blocks * (ROTATED_CAST if load.amp else ROTATED["bf16" if load.element == 2 else "fp32"])
    if tuned.kind == "loha":
        # the product of LoHa's two matrices, which is needed for the gradient of the layer's inputs
        # (tuners/loha/layer.py)
        return sum(one.inputs * one.outputs for one in tuned.linear) * _computed(load)
    if not tuned.merged:
        return 0.0
    copies = 2 if load.family in ALWAYS else 1
    return copies * _copy(load, tuned) + tuned.params / load.facts.layers * (tuned.element + (2 if load.amp else 0))


def _copy(load: Load, tuned: Adapters) -> float:
    return tuned.merged * (4.0 if load.weight == 4 or load.widened else load.element)


def in_forward(load: Load) -> float:
    """The largest temporary memory of one linear layer's forward pass, in bytes.

    DoRA computes the norm of the sum of the weight and the adapter. To get the product of the adapter's matrices, peft
    applies the adapter to an identity matrix as wide as the layer's input. The sum is one more matrix of the weight's
    size (tuners/lora/dora.py). LoHa computes two products, each as large as the layer's weight, multiplies one by the
    other, and scales the result (tuners/loha/layer.py).
    """
    tuned = load.adapters
    if tuned is not None and tuned.kind == "loha":
        return 3 * _computed(load) * max((one.inputs * one.outputs for one in tuned.linear), default=0)
    if tuned is None or tuned.kind != "dora":
        return 0.0
    cast = 2 if load.amp else 0
    each = tuned.element
    sizes = (one.inputs**2 * (each + cast) + one.inputs * one.outputs * (4 * each + cast) for one in tuned.linear)
    return float(max(sizes, default=0))  # 0 without a layer, which a rule refuses


def in_backward(load: Load) -> float:
    """The largest temporary memory of one layer's backward pass in bytes, without the part that grows with the number
    of tokens.

    - Stacked experts: peft adds the adapters to a copy of the weights, and the gradient of this copy is temporary. Its
      largest part at one time is the gradient of the gate and up projections, two thirds of the copy.
    - Quantized base: one weight at a time is unpacked to the computed dtype (bitsandbytes 0.50
      `autograd/_functions.py`, `MatMul4Bit`, `MatMul8bitLt`; FSDP gathers the packed weights).
    - LoHa: one of its two products is computed again, and the gradient of the other product exists twice, in float32
      and in the computed dtype (tuners/loha/layer.py).
    """
    tuned = load.adapters
    if tuned is None:
        return 0.0
    if tuned.kind == "loha":
        return 16.0 * max((one.inputs * one.outputs for one in tuned.linear), default=0)
    sizes = (one.inputs * one.outputs for one in linear_layers(load.facts))
    largest = max(sizes, default=0) if tuned.bits else 0
    unpacked = float(load.element * largest)
    return _copy(load, tuned) * 2 / 3 + unpacked


def rotations(layers: Sequence[Linear], blocks: int | None, size: int) -> tuple[float, float]:
    """Return two averages over the decoder layers: the number of OFT's parameters, and the number of elements in OFT's
    rotation blocks. A rotation block is a full matrix.

    The inputs of a linear layer are divided into `blocks` blocks or, if `blocks` is None, into blocks of `size` inputs.
    If `blocks` or `size` does not divide the number of inputs, peft uses the nearest divisor; if two divisors are
    equally near, it uses the smaller one (peft 0.21, `adjust_oft_parameters`).
    """
    params = whole = 0.0
    for one in layers:
        wide = _nearest_divisor(one.inputs, blocks or size)
        many, wide = (wide, one.inputs // wide) if blocks else (one.inputs // wide, wide)
        params += many * (wide * (wide - 1) // 2) * one.count
        whole += many * wide * wide * one.count
    return params, whole


def _nearest_divisor(number: int, wanted: int) -> int:
    if wanted >= number:
        return number
    higher = next(one for one in range(wanted, number + 1) if number % one == 0)
    lower = next(one for one in range(wanted, 0, -1) if number % one == 0)
    return lower if wanted - lower <= higher - wanted else higher
