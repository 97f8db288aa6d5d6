"""Make the twin of an experiment: a small version of its spec that this machine's CPU can run. The twin keeps
everything in the spec that is possible on a CPU.

The twin has eight steps and a small model of the same family. Its rows are the first rows of the same data, or made-up
rows in the same format. If a CPU can run them, the other settings stay as in the spec: template, filters, mixture,
method, rewards, adapters, optimizer, schedule, packing, evaluation, saving. `Twin.replaced` lists the settings that do
not stay, with their replacements.
"""

from __future__ import annotations

import os

from xpc.compiler.data.shapes import SHAPES
from xpc.compiler.language.items import BASE, SPEC
from xpc.compiler.language.kinds import Amount, Weighted
from xpc.compiler.language.schema import BY_PATH
from xpc.compiler.language.typed import show
from xpc.compiler.lower.specfile import specfile
from xpc.compiler.plan import CHOSEN
from xpc.compiler.preview.rehearsal.rows import other_columns
from xpc.compiler.rules.numerics.batch import total_steps
from xpc.compiler.spec.checked import CheckedSpec
from xpc.compiler.spec.resources import Model
from xpc.compiler.spec.values import Origin, Value
from xpc.grammar.record import evolve, record
from xpc.grammar.tree import quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from xpc.compiler.spec.resources import DataSource, EvalSet

STEPS = 8
CALLS = 160
"""The number of tokens in a completion that calls a tool."""
EVERY = Amount("count", 2)
LEAST_SEQ = 256
"""Made-up rows are not longer than this number of tokens."""
MADE_ROWS = "the rows are made for the rehearsal"
MOST_SEQ = 1024
"""The largest number of tokens that a row may have in a rehearsal."""
MODEL, TEACHER, OUT = "model", "teacher", "out"
DATA = "data/{}{}"
"""The name of a file with the rows of one source, such as `data/0.jsonl`. The first placeholder is the number of the
source, the second the ending of the name of the source's file.
"""

NO_GPU = "needs a GPU"
REPLACED_MODEL = "a small random model replaces the model"
ONE_MACHINE = "the rehearsal is on one machine"
OMITTED: dict[str, str] = {
    "model.attn": NO_GPU,
    "model.compile": NO_GPU,
    "model.trust_remote_code": REPLACED_MODEL,
    "model.pickle": REPLACED_MODEL,
    "model.revision": REPLACED_MODEL,
    "model.config": REPLACED_MODEL,
    "lora.from": "the adapter does not fit the small model",
    "data.workers": ONE_MACHINE,
    "method.vllm": "vLLM needs a GPU; here the model itself generates",
    "nodes": ONE_MACHINE,
    "strategy.offload": NO_GPU,
    "strategy.context_parallel": NO_GPU,
    "precision.tf32": NO_GPU,
    "memory.liger": NO_GPU,
    "memory.offload_activations": NO_GPU,
    "eval.tasks": "the benchmarks judge the trained model",
    "eval.allow_code_execution": "the benchmarks judge the trained model",
    "track.name": "nothing is sent to a tracker",
    "track.project": "nothing is sent to a tracker",
}
"""Maps each setting that a rehearsal omits to the reason. The settings nested in it are omitted, too."""
KEPT_ON_CPU = {"model.attn": ("sdpa", "eager")}
"""Maps a setting in OMITTED to the values that a CPU supports. With such a value, the setting is not omitted."""
LAUNCHED_HERE = ("launcher",)
"""Settings of `launch` that affect a local run, too."""
FALLBACKS = {"optimizer": "adamw", "strategy": "ddp", "precision": "fp32"}
"""Maps a setting to the value that a rehearsal uses if a rule refuses the spec's value on a CPU."""


@record
class Replaced:
    """A setting that a rehearsal changes: its value in the spec, its value in the small run (empty if the small run
    omits the setting), and the reason.
    """

    setting: str
    was: str
    now: str
    why: str


@record
class Rows:
    """The rows of one data source: the source in the spec, the path of the rehearsal's file of rows, and whether these
    rows are made up because this machine lacks the source.
    """

    source: DataSource
    path: str
    absent: bool


@record
class Twin:
    """The small version of an experiment: its spec, the rows that it reads, and the settings that it changes."""

    spec: CheckedSpec
    rows: tuple[Rows, ...]
    replaced: tuple[Replaced, ...]

    @property
    def text(self) -> str:
        """The spec of the small version of the experiment, as text."""
        return specfile(self.spec)


class _Draft:
    """The settings of the twin (the small run for a rehearsal) while they are being chosen."""

    def __init__(self, spec: CheckedSpec) -> None:
        self.spec = spec
        self.values = {
            path: value
            for path, value in spec.values.items()
            if value.origin.kind in (SPEC, BASE) or path in CHOSEN or path == "method"
        }
        self.extra = spec.extra
        self.replaced: list[Replaced] = []

    def put(self, path: str, value: object, why: str = "") -> None:
        """Set a setting to a value. If `why` is given and the value is not the spec's, the change is listed in
        `replaced`.
        """
        before = self.values.get(path)  # type: ignore[call-overload]
        self.values[path] = Value(value, Origin(SPEC))  # type: ignore[index]
        if why and before is not None and before.value != value:
            self._note(path, before.value, _shown(path, value), why)

    def omit(self, path: str, why: str = "") -> None:
        """Omit a setting, and the settings nested in it. If `why` is given, the omission is listed in `replaced`,
        except if the setting was off anyway.
        """
        for name in [one for one in self.values if one == path or one.startswith(path + ".")]:
            before = self.values.pop(name)
            if why and name == path and before.value not in (False, None, "none"):
                self._note(path, before.value, "", why)

    def clear(self, path: str, *kept: str) -> None:
        """Omit the settings that are nested in a setting, except the settings in `kept`."""
        for name in [one for one in self.values if one.startswith(path + ".")]:
            if name.removeprefix(path + ".") not in kept:
                self.omit(name)

    def omit_extra(self, library: str, prefix: str) -> None:
        """Omit the names of an `extra` block that begin with a prefix."""
        block = self.extra.get(library, {})
        self.extra = {**self.extra, library: {k: v for k, v in block.items() if not k.startswith(prefix)}}

    def _note(self, path: str, was: object, now: str, why: str) -> None:
        self.replaced.append(Replaced(path, _shown(path, was), now, why))


def _shown(path: str, value: object) -> str:
    row = BY_PATH.get(path)
    return str(value) if row is None else show(row, value)


def twin_of(spec: CheckedSpec, here: Callable[[DataSource], bool], rows_at_hand: bool = False) -> Twin:
    """Make the twin of a checked spec. `here` is a function that says whether the rows of a source are on this machine.
    `rows_at_hand` is true if the user gives a file of rows for the missing sources.
    """
    draft = _Draft(spec)
    for path, why in OMITTED.items():
        if spec.get(path) not in KEPT_ON_CPU.get(path, ()):  # type: ignore[call-overload]
            draft.omit(path, why)
    draft.clear("launch", *LAUNCHED_HERE)
    _machine(draft)
    _sizes(draft)
    _schedule(draft)
    _adapters(draft)
    _method(draft)
    _saving(draft)
    data, evaluated, rows = _data(draft, here, rows_at_hand)
    small = _changed(
        spec, values=draft.values, extra=draft.extra, model=_replacement(spec.model, MODEL), data=data,
        evaluated=evaluated, teacher=None if spec.teacher is None else _replacement(spec.teacher, TEACHER),
    )  # fmt: skip
    return Twin(small, tuple(rows), tuple(draft.replaced))


def _changed(spec: CheckedSpec, **changes: Any) -> CheckedSpec:
    """A copy of the spec with other values for some settings. It has no findings, because the spec's findings are about
    the old values.
    """
    return evolve(spec, problems=(), silenced=(), **changes)


def without(twin: Twin, path: str, why: str) -> Twin | None:
    """Change a setting of the small run that a rule refuses on the CPU: use its value in FALLBACKS, or omit it. Returns
    the changed twin, or None if neither is possible.
    """
    draft = _Draft(twin.spec)
    draft.replaced = list(twin.replaced)
    choice = FALLBACKS.get(path)
    if choice is not None and draft.values[path].value != choice:  # type: ignore[index]
        draft.clear(path, "lr")
        draft.put(path, choice, why)
    elif choice is None and path in draft.values and path != "method":
        draft.omit(path, why)
    else:
        return None
    return evolve(twin, spec=_changed(twin.spec, values=draft.values), replaced=tuple(draft.replaced))


def _replacement(model: Model, folder: str) -> Model:
    return evolve(model, id=None, path=folder, revision=None)


def _machine(draft: _Draft) -> None:
    """Set the hardware, the strategy and the precision of the small run. It has two processes if the spec's run has
    several. DDP replaces FSDP.
    """
    spec = draft.spec
    strategy = spec.text("strategy")
    several = spec.hardware.world > 1
    draft.put("hardware", "2 x cpu" if several else "cpu")
    if not strategy.startswith("zero"):
        draft.clear("strategy")
        draft.put("strategy", "ddp", "a CPU has no FSDP")
        draft.omit_extra("accelerate", "fsdp")
    precision = spec.text("precision")
    if precision == "fp32" or (precision == "bf16" and draft.values["strategy"].value == "ddp"):
        return
    draft.clear("precision", "nan")
    draft.omit("model.dtype")
    if precision == "fp8":
        why = "fp8 needs a GPU of compute capability 8.9; all other operations of the run are bf16"
        draft.put("precision", "bf16", why)
    else:
        draft.put("precision", "fp32", "a CPU computes in fp32 with ZeRO" if precision == "bf16" else NO_GPU)


def _sizes(draft: _Draft) -> None:
    """Set eight steps, a micro-batch of at most two rows, and a short sequence length. The small run accumulates
    gradients if and only if the spec's run does.
    """
    spec = draft.spec
    world = 2 if spec.hardware.world > 1 else 1
    micro = min(2, spec.integer("batch.micro"))
    accum = 2 if spec.integer("batch.accum") > 1 else 1
    if spec.online:
        micro = 2
    draft.omit("batch.accum")
    draft.put("batch.micro", micro)
    draft.put("batch.gbs", micro * accum * world)
    if spec.get("batch.seq") is not None and not spec.online:
        uncut = spec.flag("batch.padding_free") and not spec.flag("batch.packing") and not spec.written("batch.seq")
        if not uncut:
            draft.put("batch.seq", min(MOST_SEQ, spec.integer("batch.seq")), "rows of a rehearsal are short")
    if spec.get("batch.packing.isolate") == "flash":
        draft.put("batch.packing", True)
        draft.put("batch.packing.isolate", "mask", NO_GPU)
    for path in ("train.epochs", "train.steps"):
        draft.omit(path)
    draft.put("train.steps", STEPS)
    if "eval.micro" in draft.values:
        draft.put("eval.micro", min(2, spec.integer("eval.micro")))


def _schedule(draft: _Draft) -> None:
    """Keep the shape of the schedule. A number of steps, such as the warm-up, becomes the same share of the small run's
    eight steps.
    """
    steps = total_steps(draft.spec)
    for path, value in list(draft.values.items()):
        if path.startswith("schedule.") and isinstance(value.value, Amount) and value.value.unit == "count":
            count = value.value.value
            draft.put(path, Amount("share", min(1.0, count / steps)) if steps else Amount("count", min(2, count)))


def _adapters(draft: _Draft) -> None:
    """Limit the rank to 8, with the spec's alpha / rank. Without quantization if the stack cannot load a quantized base
    on a CPU.
    """
    spec = draft.spec
    rank = spec.get("lora.rank")
    if isinstance(rank, int) and rank > 8 and spec.lora:
        draft.put("lora.rank", 8, REPLACED_MODEL)
        alpha = spec.get("lora.alpha")
        if isinstance(alpha, int | float):
            draft.put("lora.alpha", alpha * 8 / rank)
    if spec.bits is not None and not spec.stack.facts.quantized_on_cpu:
        for path in ("lora.bits", "lora.double_quant", "qlora"):
            draft.omit(path)
        draft.replaced.append(Replaced("lora.bits", str(spec.bits), "", "the stack loads no quantized base on a CPU"))
        if spec.adapter == "qlora":
            draft.put("lora", True)
    for path in ("freeze.except_last", "freeze.except_first"):
        if path in draft.values:
            draft.put(path, 1, REPLACED_MODEL)


def _method(draft: _Draft) -> None:
    """Set short completions and small groups, for online methods."""
    spec = draft.spec
    if spec.get("method.max_completion") is not None:
        most = CALLS if spec.calls_tools else 8
        draft.put("method.max_completion", min(most, spec.integer("method.max_completion")), "completions are short")
    if spec.calls_tools:
        draft.put("method.tool_turns", 1)
    if spec.get("method.max_prompt") is not None:
        draft.put("method.max_prompt", min(512, spec.integer("method.max_prompt")))
    if spec.get("method.generations") is not None:
        draft.put("method.generations", 2, "groups are small")
    draft.omit("method.steps_per_generation")
    if spec.teacher is not None:
        draft.put("method.teacher", quoted(TEACHER))


def _saving(draft: _Draft) -> None:
    """Set `save` and `eval` to every two steps, a folder of the rehearsal as output, a local launch, and no tracker."""
    spec = draft.spec
    draft.put("save", OUT)
    if spec.get("save.every") != Amount("never"):
        draft.put("save.every", EVERY)
    if spec.evaluates and spec.get("eval.every") != Amount("never"):
        draft.put("eval.every", EVERY)
    draft.put("launch", "local", ONE_MACHINE)
    draft.put("track", ("none",), "nothing is sent to a tracker")
    draft.put("track.every", Amount("count", 1))
    draft.omit("save.hub.revision")


def _data(
    draft: _Draft, here: Callable[[DataSource], bool], at_hand: bool
) -> tuple[tuple[DataSource, ...], tuple[EvalSet, ...], list[Rows]]:
    """The data sources and evaluation sets of the small run, with one file in `data/` for each source."""
    spec = draft.spec
    rows: list[Rows] = []

    def small(source: DataSource) -> DataSource:
        found = here(source)
        ending = os.path.splitext(source.path or "")[1] if found else ".jsonl"
        path = DATA.format(len(rows), "" if found and source.parts else ending)
        rows.append(Rows(source, path, not found))
        take = source.take if source.take is None or source.take.unit == "share" else None
        columns, only = source.columns, source.only
        if columns not in (None, SHAPES[source.shape]) and source.id is not None:  # the registry's columns
            more = other_columns(spec) if source.shape == "prompt" else ()
            columns, only = tuple(dict.fromkeys((*(columns or ()), *more))), True
        return evolve(
            source, id=None, path=path, config=None, revision=None, slice=None, take=take, limit=None,
            columns=columns, only=only, split=source.split if source.parts else "train",
        )  # fmt: skip

    data = tuple(map(small, spec.data))
    evaluated = tuple(evolve(one, sources=tuple(map(small, one.sources))) for one in spec.evaluated)
    draft.omit("data.format")
    formats = {source.wording or source.shape for source in data}
    if len(formats) == 1:
        draft.put("data.format", next(iter(formats)))
    split = spec.get("eval.split")
    if split is not None and not all(source.parts for source in spec.data):
        draft.omit("eval.split")
        draft.put("data.holdout", Amount("share", 0.25))
        draft.replaced.append(
            Replaced("eval.split", str(split), "data.holdout = 25%", "the rows of this split are not on this machine")
        )
    holdout = spec.get("data.holdout")
    if isinstance(holdout, Amount) and holdout.unit == "count":
        draft.put("data.holdout", Amount("share", 0.25), "a rehearsal has few rows")
    made = any(one.absent for one in rows) and not at_hand
    rewards = spec.get("method.rewards")
    if made and isinstance(rewards, tuple) and any(one.function is not None for one in rewards):
        own = tuple(one for one in rewards if one.function is None) or (Weighted("format", 1.0),)
        why = "a function of your own reads columns that generated rows do not have; --rows FILE gives real rows"
        draft.put("method.rewards", own, why)
    if made:
        for path in ("data.min_tokens", "data.max_tokens"):
            if path in draft.values:
                draft.omit(path, MADE_ROWS)
        if "batch.seq" in draft.values and spec.integer("batch.seq") < LEAST_SEQ:
            draft.put("batch.seq", LEAST_SEQ, MADE_ROWS)
    return data, evaluated, rows
