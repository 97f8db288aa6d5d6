"""The legality rules: an explicit list of modules, so that what is checked can be read in one place.

A module is imported only for a spec that it can say something about: start-up is counted in milliseconds, and most
specs have no `extra` and no reinforcement.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from xpc.compiler.engines import ENGINES, Engine, chosen, engine, named
from xpc.compiler.files import suspect
from xpc.compiler.language.schema import path_of
from xpc.compiler.rules.rule import Rule
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Diagnostic
from xpc.grammar.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.compiler.language.paths import FlagPath, Path

FEW = 2**16
"""Rows that a batch may be larger than."""
LATER = ("wsd", "polynomial", "reduce_lr_on_plateau", "greedy")
"""Schedules that not every strategy, target or run can have."""
PACKED: tuple[FlagPath, ...] = ("batch.packing", "batch.packing.eval", "batch.padding_free")
TRACKING: tuple[Path, ...] = ("track", "track.name", "track.project")
OPTIMIZER = ("targets", "rank", "scale", "update_proj_gap", "momentum")
SCHEDULE = ("max_lr", "warmup_lr", "decay_type", "cycles", "power", "timescale", "factor", "patience")
TUNED = ("block_size", "parameters", "modules_to_save", "lr_ratio", "embedding_lr")
TOKENS: tuple[Path, ...] = ("model.eos", "model.pad", "model.chat_template", "data.system")
SECRECY: tuple[Path, ...] = ("model.pickle", "data.system")


@record
class Group:
    """A module of rules, and the specs that it speaks of."""

    module: str
    applies: Callable[[Spec], bool] = lambda spec: True

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of the module; importing it is what costs."""
        found: tuple[Rule, ...] = import_module(f"xpc.compiler.rules.{self.module}").RULES
        return found


def _extra(*names: str) -> Callable[[Spec], bool]:
    return lambda spec: any(map(spec.extra.get, names))


def _has(spec: Spec, clause: str, names: tuple[str, ...]) -> bool:
    return any(spec.written(path_of(f"{clause}.{name}")) for name in names)


def _marked(spec: Spec) -> bool:
    """Whether the spec names a text, or a run by 40 letters, or has in it what every secret has."""
    if any(not name.startswith("data/") for name in spec.bundled):
        return True
    if any(isinstance(one, str) and len(one) == 40 for one in (spec.get("track.name"), spec.get("track.project"))):
        return True
    texts = {spec.source.text}
    texts.update(one.origin.label.source.text for one in spec.values.values() if one.origin.label is not None)
    return any(map(suspect, texts))


GROUPS: tuple[Group, ...] = (
    Group("batch"),
    Group("batch_rows", lambda spec: any(one.path or one.take or (one.rows or FEW) < FEW for one in spec.data)),
    Group("optimizer", lambda spec: spec.get("optimizer") != "adamw" or _has(spec, "optimizer", OPTIMIZER)),
    Group("schedule", lambda spec: spec.get("schedule") in LATER or _has(spec, "schedule", SCHEDULE)),
    Group("precision"),
    Group("attention"),
    Group("packing", lambda spec: any(map(spec.flag, PACKED))),
    Group("kernels"),
    Group("sharding"),
    Group("memory"),
    Group("context", lambda spec: spec.get("strategy.context_parallel") is not None),
    Group("data"),
    Group("data_rows", lambda spec: any(one.path or one.take for one in spec.sources) or spec.written("data.holdout")),
    Group("data_folders", lambda spec: any(one.parts for one in spec.sources)),
    Group("evaluation_sets", lambda spec: bool(spec.evaluated)),
    Group("data_survey", lambda spec: any(one.sha256 or one.parts for one in spec.sources)),
    Group("data_tokens", lambda spec: any(map(spec.written, TOKENS)) or spec.model.name.startswith("gemma-")),
    Group("evaluation", lambda spec: spec.written("eval.tasks") or spec.written("eval.allow_code_execution")),
    Group("saving"),
    Group("secrecy", lambda spec: any(map(spec.written, SECRECY)) or _marked(spec)),
    Group("publishing", lambda spec: spec.get("save.hub") is True),
    Group("launch"),
    Group("cluster", chosen),
    Group("tracking", lambda spec: any(map(spec.written, TRACKING))),
    Group("method", lambda spec: spec.get("method") != "sft" or spec.get("method.loss") is not None),
    Group("sft", lambda spec: spec.get("method") == "sft"),
    Group("preference", lambda spec: "preference" in spec.method.shapes),
    Group("pairs", lambda spec: spec.get("method") == "dpo"),
    Group("online", lambda spec: spec.method.grouped and spec.get("method.generations") is not None),
    Group("vllm", lambda spec: spec.online and spec.flag("method.vllm")),
    Group("adapters", lambda spec: spec.lora),
    Group("adapted", lambda spec: spec.lora),
    Group(
        "tuned",
        lambda spec: (
            spec.flag("freeze") or spec.flag("oft") or _has(spec, "lora", TUNED) or spec.written("model.tokens")
        ),
    ),
    Group("frozen", lambda spec: spec.flag("freeze")),
    Group("quantized", lambda spec: "quantization_config" in spec.model.config),
    Group("extra_optimizer", _extra("trl")),
    Group("extra_run", _extra("trl")),
    Group("best_model", _extra("trl")),
    Group("extra_numerics", _extra("trl", "accelerate")),
    Group("extra_strategy", _extra("trl")),
    Group("extra_data", _extra("trl")),
    Group("extra_accelerate", _extra("accelerate")),
    Group("extra_deepspeed", _extra("deepspeed")),
    Group("extra_gradients", _extra("deepspeed")),
)


def check(spec: Spec) -> list[Diagnostic]:
    """Every finding of every rule that applies."""
    found = [found for group in GROUPS if group.applies(spec) for one in group.rules for found in one.run(spec)]
    if chosen(spec):
        found += [found for one in _of_engine(engine(spec)) for found in one.run(spec)]
    if any(one.parts for one in spec.sources):
        from xpc.compiler.data.folders import fewer

        return fewer(found)
    return found


def every() -> tuple[Rule, ...]:
    """All rules, for explanations, the reference and the tests."""
    return (
        *(one for group in GROUPS for one in group.rules),
        *(one for name in ENGINES for one in _of_engine(named(name))),
    )


def _of_engine(one: Engine) -> tuple[Rule, ...]:
    found: tuple[Rule, ...] = import_module(one.rules).RULES if one.rules else ()
    return found
