"""Correct a plan with the measured speed and peak memory of real runs (`xpc plan --calibration FILE`).

If a run with the same settings was measured, the plan uses the measured values. If only other runs with the same model,
GPU and kind of training were measured, each value of the plan is multiplied by a factor: the median, over these runs,
of the measured value divided by the planned value. `calibration_file.py` reads the file. The commands check, compile,
diff and verify never load the file, because their results must depend only on the spec and on the version of xpc.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from hashlib import sha256

from xpc.compiler.language.setting import Path
from xpc.compiler.plan.from_spec import WEIGHTLESS
from xpc.compiler.spec import Spec
from xpc.grammar.record import record

KIND: tuple[Path, ...] = ("precision", "method", "memory.liger", "batch.packing", "model.attn")
"""Settings of a measured run that must be equal in the planned run, besides model, GPU, stack and adapter. Otherwise
the measurement is not used.
"""


@record
class Reading:
    """The measurements of one run. `run` has the settings that decide speed and memory, as text.

    `seconds` has three numbers: the median, the 10th and the 90th percentile of the seconds per optimizer step.
    `tokens` is the measured number of tokens per second of one process, and `peak` the measured peak bytes on a GPU.
    `planned_tokens` and `planned_peak` are the plan's predictions of `tokens` and `peak`.
    """

    run: Mapping[str, str]
    seconds: tuple[float, float, float]
    tokens: float | None
    peak: int | None
    planned_tokens: float | None
    planned_peak: float | None
    source: str


@record
class Measured:
    """Measurements for a planned run. If `exact` is true, the run itself was measured, and the other fields are its
    seconds per step, its tokens per second and its peak in bytes. Otherwise, only similar runs were measured; the
    plan's speed is then multiplied by `pace`, and its peak by `growth`.
    """

    exact: bool
    seconds: tuple[float, float, float] | None
    tokens: float | None
    peak: float | None
    pace: float | None
    growth: float | None
    source: str


def identity(spec: Spec) -> dict[str, str]:
    """The settings of a run that decide its speed and memory, as text. The last entry is a digest; it also covers the
    settings that have no entry of their own.
    """
    hardware = spec.hardware
    gpu = "cpu" if hardware.gpu is None else hardware.gpu.name
    kind = {str(path): str(spec.get(path)) for path in KIND}
    shown = {
        "model": str(spec.model.name), "gpu": gpu, "stack": spec.stack.name,
        "adapter": f"{spec.adapter} {spec.bits or ''}".strip() if spec.lora else "none", **kind,
        "processes": f"{hardware.nodes} x {hardware.processes}", "strategy": spec.text("strategy"),
        "batch": f"{spec.get('batch.gbs')} = micro {spec.get('batch.micro')} x {spec.get('batch.accum')}",
        "seq": str(spec.get("batch.seq")), "checkpointing": str(spec.flag("memory.checkpointing")),
    }  # fmt: skip
    rest = [f"{path}={spec.values[path].value!r}" for path in sorted(spec.values) if not path.startswith(WEIGHTLESS)]
    rest += [repr(source.path or source.id) for source in spec.data]
    return {**shown, "others": sha256("\n".join(rest).encode("utf-8", "surrogatepass")).hexdigest()[:16]}


def measured(readings: Sequence[Reading], spec: Spec) -> Measured | None:
    """The measurements of this run or, if it was not measured, of similar runs (with the same model, GPU, stack and
    adapter, for example). None if no similar run was measured either.
    """
    mine = identity(spec)
    same = [one for one in readings if one.run == mine]
    if same:
        last = same[-1]
        spread = [number for one in same for number in one.seconds]
        seconds = statistics.median(one.seconds[0] for one in same), min(spread), max(spread)
        peaks = [one.peak for one in same if one.peak is not None]
        return Measured(True, seconds, last.tokens, max(peaks) if peaks else None, None, None, _cited(same, "this run"))
    alike = ("model", "gpu", "stack", "adapter", *KIND)
    similar = [one for one in readings if all(one.run.get(name) == mine[name] for name in alike)]
    paces = [one.tokens / one.planned_tokens for one in similar if one.tokens and one.planned_tokens]
    peaks_over = [one.peak / one.planned_peak for one in similar if one.peak and one.planned_peak]
    if not paces and not peaks_over:
        return None
    pace = statistics.median(paces) if paces else None
    growth = statistics.median(peaks_over) if peaks_over else None
    return Measured(False, None, None, None, pace, growth, _cited(similar, "similar runs"))


def _cited(found: Sequence[Reading], of: str) -> str:
    many = f"{len(found)} measurement{'s' if len(found) > 1 else ''} of {of}"
    return f"{many} ({found[-1].source}{', ...' if len(found) > 1 else ''})"
