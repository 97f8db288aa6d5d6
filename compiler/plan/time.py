"""Predict the time of a step. The time is a sum of parts, such as attention. Each part is multiplied by a weight that
was fitted to public measurements (utilisation.json).

A token costs 2 operations for each parameter in the forward pass. In the backward pass, it costs 2 operations for each
parameter of the layers that a gradient passes through, and 2 more for each trained parameter. If layers are recomputed,
the forward pass is counted twice. In each layer, the forward pass of attention costs 2 x width x length (Kaplan et al.
2020, arXiv:2001.08361, section 2.1, counting only the causal half of the scores).

The time of communication is the number of bytes divided by the bandwidth inside a machine or between machines. The
weights were fitted for one chip of each generation (A100, H100); `of_another_chip` converts them for other chips.
"""

from __future__ import annotations

from collections.abc import Sequence

from xpc.grammar.package_data import read_json
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NARROW = 768
"""Matrix products in narrow layers take additional time: the time of the products, multiplied by NARROW / hidden size
and by a fitted weight.
"""
LONG_ATTENTION = {8: 1 / 0.6, 9: 1 / 0.5}
"""For rows that are split over several GPUs: the time of attention, divided by the time that its causal operations
would take at the GPU's peak. Keys are the GPU's compute capability: 8 (A100) and 9 (H100).

Such rows are long, so the kernels come close to their best speed. FlashAttention 2 states 0.50 to 0.73 of A100's peak
(arXiv:2307.08691, abstract), and 0.6 is the middle of this range. On H100, FlashAttention 2 reaches 0.35, and
FlashAttention 3 up to 0.75 (arXiv:2407.08608, abstract: forward passes; pytorch/benchmark#2391 measured 621 of 989
TFLOP/s, 0.63, for rows of 16,384 tokens with heads of 128); backward passes are slower than that. So the value for H100
is 0.5. Its only public test is TRL's run with 1,048,576 tokens (docs/plan-accuracy.md); there is no such run on A100.
The weight that was fitted to other runs is not used, because they had older kernels, smaller heads and shorter rows.
"""
LOOPED_EXPERT = 0.24e-3
"""Seconds that the CPU needs to start the kernels of one expert in a forward pass, if a layer computes its experts one
after the other. A backward pass counts as two forward passes. The value is the median of runs in which the GPUs wait
for the CPU: granite-3.0-3b-a800m with 40 small experts on one, two and four A100 (fms-acceleration,
refs/a100_80gb_moe.csv).
"""
ADAPTED_LAYER = 1.4e-3
"""Seconds that the CPU needs to start the kernels of a layer with adapters in a forward pass: the median of PEFT's LoRA
runs of Llama 3.2 3B with 840 tokens in a micro-batch (peft, method_comparison/MetaMathQA/results, July 2026). Layers
without adapters have no such measurement.
"""
HOOKED_MODULE = ADAPTED_LAYER * 11.6 / 3.3 / 9
"""Seconds that the CPU needs under ZeRO-3 to pass through a module with weights, whose hooks gather and free them.

On a CPU, the four passes through a layer of Llama, which has nine such modules, take 11.6 ms under ZeRO-3, and 3.3 ms
with LoRA and without ZeRO-3 (the means of three runs of tests/plan/hook_time.py with trl-1.16). So a module takes 11.6
/ 3.3 / 9 times as long as ADAPTED_LAYER, which was measured on a machine with GPUs.
"""
ONE_RUN = (1 / 1.3, 1 / 0.7)
"""The range of real time / predicted time for V100 in fp32. Only one such run was measured, and a range cannot be
fitted to one run, so this range is a guess.
"""


@record
class Work:
    """The work of one GPU: active parameters, layers, width, the tokens of a row, the tokens of a micro-batch, and the
    GPU's peak in operations per second.

    `through` is the share of the layers that a gradient passes through. `trained` is the share of the parameters that
    have a gradient. It is 0 for a run with adapters, because adapters are too small to count. `sent` is the number of
    bytes that the GPU sends in a micro-batch. `link` and `network` are the GPU's bandwidths inside the machine and to
    other machines, in bytes per second. `machines` is the number of machines. `touched` is the number of bytes of
    weights and gradients that a micro-batch reads and writes, and `bandwidth` the GPU's memory bandwidth in bytes per
    second. If `shared` is true, several GPUs share one row. `loops` is the number of experts that a layer computes one
    after the other. `hooked` is the number of modules of a layer whose weights ZeRO-3 gathers.
    `compared` is the work of frozen models, such as a reference, divided by that of one forward pass.
    """

    params: float
    layers: int
    hidden: int
    length: int
    tokens: int
    checkpointing: bool
    trained: float
    peak: float
    sent: float
    link: float
    network: float
    machines: int
    touched: float
    bandwidth: float
    through: float = 1.0
    shared: bool = False
    loops: int = 0
    hooked: int = 0
    compared: float = 0.0


@record
class Speed:
    """A predicted number of tokens per second on one GPU. `low` and `high` are the bounds of the ratio of real time to
    predicted time in measured runs.
    """

    tokens: float
    low: float
    high: float
    source: str


def table() -> dict[str, Any]:
    """The fitted weights in utilisation.json. A process reads the file once."""
    return read_json(__file__, "utilisation.json")


def sent(stage: int, world: int, weights: float, gradients: float, accumulation: float) -> float:
    """Bytes that a process sends in a micro-batch, averaged over an optimizer step.

    Under ZeRO-3 and FSDP, the sharded weights are gathered twice, for the forward and for the backward pass, and
    gradients are reduced to the processes that own them. ZeRO-2 reduces gradients after each backward pass of a step,
    ZeRO-1 only after the last backward pass. Both then gather the new weights once. DDP reduces gradients once in a
    step, which sends each gradient twice (Rajbhandari et al. 2020, arXiv:1910.02054, section 7; DeepSpeed 0.19.8,
    stage_1_and_2.py).
    """
    if world == 1:
        return 0.0
    each = {
        0: 2 * gradients / accumulation,
        1: (gradients + weights) / accumulation,
        2: gradients + weights / accumulation,
        3: 2 * weights + gradients,
    }
    return each[stage] * (world - 1) / world


def touched(weights: float, gradients: float, checkpointing: bool) -> float:
    """The bytes of weights and gradients that a micro-batch of any size reads and writes. The forward pass, the
    recomputation and the backward pass each read all weights. Gradients are both read and written.
    """
    return weights * (3 if checkpointing else 2) + 2 * gradients


def parts(work: Work) -> list[float]:
    """Seconds per token at peak speed, one number for each part: products of matrices, additional time for narrow
    layers, attention, links inside the machine, the network, and reading the weights. A small micro-batch takes more
    time per token to read the weights than a large one.
    """
    forward = 1.0 + work.compared + (work.through if work.checkpointing else 0.0)
    products = 2.0 * (forward + work.through + work.trained) * work.params / work.peak
    attention = 2.0 * (forward + 2.0 * work.through) * work.layers * work.hidden * work.length / work.peak
    moved = work.sent / max(1, work.tokens)
    return [
        products, products * NARROW / work.hidden, attention, moved / work.link,
        moved / work.network if work.machines > 1 else 0.0, work.touched / work.bandwidth / max(1, work.tokens),
    ]  # fmt: skip


def of_another_chip(work: Work, measured: Sequence[float], share: float, least: float) -> float:
    """The factor by which matrix products and attention are slower on the run's chip than on the measured chip, if the
    speed on each chip is given as a share of the chip's peak speed.

    The kernels between the products are limited by memory bandwidth. On the measured chip, these kernels take the share
    `share` of the time. On another chip, their time grows with the ratio of the chip's peak to its bandwidth. `least`
    is the smallest factor that is returned. `measured` has the measured chip's peak in operations per second and its
    bandwidth in bytes per second. A GPU with the same peak counts as the same chip (H200, A800).
    """
    peak, bandwidth = measured
    if work.peak == peak:
        return 1.0
    return max(least, 1.0 + share * (work.peak / work.bandwidth * bandwidth / peak - 1.0))


def seconds(work: Work, weights: Sequence[float], chip: float = 1.0) -> float:
    """Seconds per token. Matrix products and attention take `chip` times as long as on the measured chip
    (`of_another_chip`).
    """
    found = [weight * part for weight, part in zip(weights, parts(work))]
    return chip * sum(found[:3]) + sum(found[3:])


def starting(work: Work) -> float:
    """Seconds per token that the CPU needs to start kernels: those of layers with adapters, those of experts that are
    computed one after the other, and those with which ZeRO-3 gathers weights. Starting a kernel always takes the same
    time, so the time per token is longer if the micro-batch has few tokens.
    """
    passes = 1.0 + work.compared + 2.0 * work.through + (work.through if work.checkpointing else 0.0)
    each = LOOPED_EXPERT * work.loops + HOOKED_MODULE * work.hooked + (0.0 if work.trained else ADAPTED_LAYER)
    return each * passes * work.layers / max(1, work.tokens)


def range_of(kinds: Sequence[str]) -> tuple[float, float]:
    """The range in which the ratio of real time to predicted time lies for nine of ten measured runs. For some kinds of
    runs (`kinds`), the range is wider (`ranges` in utilisation.json; tests/plan/ranges.py).
    """
    found = [table()["ranges"][kind] for kind in ("base", *kinds)]
    return min(low for low, _ in found), max(high for _, high in found)


def speed(work: Work, generation: int, precision: str, trainer: str, kinds: Sequence[str] = ()) -> Speed | None:
    """The predicted speed. None if no run with this precision was measured on this generation of GPUs.

    `trainer` is "full", "lora" or "qlora", followed by " fused" if Liger's or other fused kernels run, or by " casts"
    if norms of a quantized base are float32. `kinds` are properties of the run that make the prediction less certain;
    each of them widens the range.
    """
    known = table()
    kind = f"{generation}/{'fp32' if precision == 'fp32' else 'fp8' if precision == 'fp8' else 'half'}"
    weights = known["weights"].get(kind)
    # a config.json may state sizes of 0, for which no speed can be computed
    if weights is None or not (work.params and work.hidden):
        return None
    if kind == "7/fp32":
        return Speed(1 / seconds(work, weights), *ONE_RUN, "one published run on V100")
    if work.shared:
        weights = [*weights[:2], LONG_ATTENTION[generation], *weights[3:]]
    factor = known["trainers"].get(trainer) or known["trainers"].get(trainer.partition(" ")[0]) or 1.0
    chip, others = known["chips"][str(generation)], known["other_chips"]
    other = of_another_chip(work, chip["peak_and_bandwidth"], others["share"], others["least"])
    source = f"{known['rows'][kind]} published runs"
    if work.peak != chip["peak_and_bandwidth"][0]:
        kinds = [*kinds, "other chip"]
        source += f" on {chip['name']}, and {others['rows']} on {others['cards']} kinds of GPUs with other chips"
    needed = max(seconds(work, weights, other) * factor, starting(work))
    return Speed(1 / needed, *range_of(kinds), source)
