"""When a module of rules has something to say: its `WHEN` is one of these, or `either` of several.

A module is imported only for a spec that its condition holds for, since start-up is counted in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable

from xpc.compiler.files.secrets import suspect
from xpc.compiler.language.launch_settings import ENGINES
from xpc.compiler.language.schema import children
from xpc.compiler.language.setting import FlagPath, Path, TextPath
from xpc.compiler.spec import Spec

Condition = Callable[[Spec], bool]
FEW = 2**16
"""Rows that a batch may be larger than."""


def always(spec: Spec) -> bool:
    """Every spec."""
    return True


def written(*paths: Path) -> Condition:
    """The spec or a base of it states one of the settings."""
    return lambda spec: any(map(spec.written, paths))


def given(*paths: Path) -> Condition:
    """One of the settings has a value, written or derived."""
    return lambda spec: any(spec.get(path) is not None for path in paths)


def on(*paths: FlagPath) -> Condition:
    """One of the flags is set."""
    return lambda spec: any(map(spec.flag, paths))


def chosen(path: TextPath, *choices: str) -> Condition:
    """The setting has one of the choices."""
    return lambda spec: spec.get(path) in choices


def other(path: TextPath, *choices: str) -> Condition:
    """The setting has another choice than these."""
    return lambda spec: spec.get(path) not in choices


def extra(*names: str) -> Condition:
    """The spec has one of the blocks `extra trl`, `extra accelerate` and `extra deepspeed`."""
    return lambda spec: any(map(spec.extra.get, names))


def either(*conditions: Condition) -> Condition:
    """One of the conditions holds."""
    return lambda spec: any(one(spec) for one in conditions)


def both(*conditions: Condition) -> Condition:
    """All of the conditions hold."""
    return lambda spec: all(one(spec) for one in conditions)


def adapters(spec: Spec) -> bool:
    """Adapters are trained."""
    return spec.lora


def generates(spec: Spec) -> bool:
    """The model is trained on completions that it generates itself."""
    return spec.online


def grouped(spec: Spec) -> bool:
    """The completions of one prompt are compared with each other."""
    return spec.method.grouped


def preferences(spec: Spec) -> bool:
    """The method trains on preferences."""
    return "preference" in spec.method.shapes


def quantized(spec: Spec) -> bool:
    """The weights of the model are quantized already."""
    return "quantization_config" in spec.model.config


def gemma(spec: Spec) -> bool:
    """The model is one of the Gemmas, whose template has no system prompt."""
    return spec.model.name.startswith("gemma-")


def names_an_engine(spec: Spec) -> bool:
    """The spec names an engine, or writes a setting that only some engines read."""
    written = (row.engines and spec.written(row.path) for row in children("launch"))
    return spec.get("launch") != ENGINES[0] or any(written)


def few_rows(spec: Spec) -> bool:
    """The data may have fewer rows than a batch."""
    return any(one.path or one.take or (one.rows or FEW) < FEW for one in spec.data)


def counted_rows(spec: Spec) -> bool:
    """The rows of a source are known, or are to be counted out."""
    return any(one.path or one.take for one in spec.sources)


def data_folders(spec: Spec) -> bool:
    """A source is a folder."""
    return any(one.parts for one in spec.sources)


def local_tokenizer(spec: Spec) -> bool:
    """The end token of a local model's tokenizer is known."""
    return spec.model.eos is not None


def surveyed(spec: Spec) -> bool:
    """The rows of a source were read."""
    return any(one.sha256 or one.parts for one in spec.sources)


def evaluation_rows(spec: Spec) -> bool:
    """There are rows of their own to evaluate on."""
    return bool(spec.evaluated)


def secrets(spec: Spec) -> bool:
    """The spec names a text, or a run by 40 letters, or has in it what every secret has."""
    if any(not name.startswith("data/") for name in spec.bundled):
        return True
    if any(isinstance(one, str) and len(one) == 40 for one in (spec.get("track.name"), spec.get("track.project"))):
        return True
    texts = {spec.source.text}
    texts.update(one.origin.label.source.text for one in spec.values.values() if one.origin.label is not None)
    return any(map(suspect, texts))


def advised(spec: Spec) -> bool:
    """What the table of advisories speaks of beside other rules: the reduction of ZeRO, accumulations, a fused loss."""
    if spec.zero_stage and spec.get("strategy.overlap_comm") is True:
        return True
    if spec.zero_stage and spec.integer("batch.accum") > 1 and spec.stack.facts.zero_counts_micro_batches:
        return True
    fused = spec.extra_value("trl", "use_liger_loss") is not None
    return spec.get("method") != "sft" and (fused or spec.integer("batch.accum") > 1)
