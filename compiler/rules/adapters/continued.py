"""Rules about `lora(from = ...)`, with which a run continues to train the adapter of another run (XP931 to XP934)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from xpc.compiler.language.schema import path_of
from xpc.compiler.registry.adapter_config import SHAPES, stated
from xpc.compiler.rules.core.conditions import has_value
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = has_value("lora.from")
SHAPE = ("rank", "block_size", "alpha", "rslora", "dora", "targets", "parameters", "modules_to_save")
"""Settings of a saved adapter that must stay the same in a run that continues to train it. Only its
dropout may change.
"""


@rule("XP931", "continued-adapter-of-another-shape", reads=("lora.rank", "lora.alpha", "lora.targets"))
def another_shape(spec: Spec) -> Iterator[Finding]:
    """An adapter whose training continues must keep its kind, rank, alpha, targets and task. Settings that the spec
    leaves out are read from the saved adapter_config.json.

    Why it is bad: the run trains another adapter than the saved one.

    Without this rule: with another rank, torch raises an error after the model is loaded. If only alpha differs, the
    adapter silently has another effect from the first step on. If `targets` names modules that the saved adapter lacks,
    these get untrained adapters next to the trained ones. Saved weights without a matching target are dropped with a
    warning.

    Source: peft 0.21 `save_and_load.py` (`strict=False`); confirmed by running it.
    """
    adapter = spec.continued
    if adapter is None:
        return
    kind = str(adapter.config["peft_type"])
    name = kind.lower()
    if name != ("lora" if spec.low_rank else spec.adapter):
        yield Finding(
            spec.location("lora.from", f"{kind} in its adapter_config.json"),
            f"`{spec.adapter}` cannot continue a saved `{name}` adapter",
            f"write `{name}(from = ...)`",
        )
        return
    for name in SHAPE:
        path, found = path_of(f"lora.{name}"), stated(adapter.config, name)
        if not spec.written(path) or (name == "targets" and spec.get(path) == "all-linear"):
            # `all-linear` is not compared here: the names of all linear layers are known only once the model is loaded,
            # so the run compares them
            continue
        if name not in SHAPES[kind]:
            continue  # XP464 already reports a setting that this kind of adapter lacks
        value = spec.get(path)
        value = tuple(sorted(map(str, value))) if isinstance(value, tuple) else value
        if (value or None) != (found or None):
            yield Finding(
                spec.location(path, f"the adapter has {_shown(found)}"),
                f"the adapter in {adapter.path[:80]} was trained with another `{name}` than the spec states",
                f"leave `{name}` out: the adapter's own value is used",
                (spec.label("lora.from", "the adapter"),),
            )
    task = adapter.config.get("task_type")
    wanted = "SEQ_CLS" if spec.method.scores else "CAUSAL_LM"
    if task is not None and task != wanted:
        yield Finding(
            spec.location("lora.from", f"task_type {str(task)[:40]}"),
            f"the adapter was not trained for {wanted}, the task of {spec.text('method')}",
            "name an adapter that was trained for this task, or start a new adapter",
            (spec.label("method", "the method"),),
        )


def _shown(found: object) -> str:
    if isinstance(found, tuple):
        return f"[{', '.join(found)}]"
    return f"{found:g}" if isinstance(found, float) else str(found).lower()


@rule("XP932", "continued-adapter-of-another-base")
def another_base(spec: Spec) -> Iterator[Finding]:
    """Training of an adapter must continue on the base model that the adapter's adapter_config.json names. If
    adapter_config.json names a folder, only the last part of the folder's path is compared, and a difference is a
    warning instead of an error.

    Why it is bad: an adapter holds changes to the weights of its base. Added to other weights, these changes are noise.

    Without this rule: if the shapes differ, the run fails after the model is loaded. If the shapes are equal, training
    continues from a model that generates nonsense.

    Source: peft 0.21 `peft_model.py` (the base is never compared); confirmed by running it.
    """
    adapter = spec.continued
    base = None if adapter is None else adapter.config.get("base_model_name_or_path")
    if adapter is None or not isinstance(base, str) or not base:
        return
    own = spec.model.id or spec.model.path or ""
    ids = spec.model.id is not None and base.count("/") == 1 and not base.startswith((".", "/"))
    last = [PurePosixPath(one).name.lower() for one in (own, base)]
    if (ids and own.lower() != base.lower()) or last[0] != last[1]:
        yield Finding(
            spec.location("lora.from", f"trained over {base[:80]}"),
            f"the adapter was trained on another model than {spec.model.name}"
            if ids
            else f"the adapter was trained on {base[:80]}, which may not be {spec.model.name}",
            "train the base model that the adapter was trained on",
            (spec.model.label,),
            severity=None if ids else "warning",
        )
        return
    revision = adapter.config.get("revision")
    if isinstance(revision, str) and spec.model.revision is not None and revision != spec.model.revision:
        yield Finding(
            spec.location("lora.from", f"trained over revision {revision[:40]}"),
            f"the adapter was trained on another revision of {spec.model.name}",
            f"write `{base}@{revision}` in the header",
            (spec.model.label,),
            severity="warning",
        )


@rule("XP933", "continued-over-other-bits", "warning", reads=("lora.bits",))
def other_bits(spec: Spec) -> Iterator[Finding]:
    """The base of a continued adapter should be quantized to the same number of bits as in the earlier run. xpc knows
    this number if a bundle trained the adapter, because the adapter's folder then records it.

    Why it is bad: an adapter on a quantized base has learned to compensate for the base's rounding errors. An
    unquantized base does not have these errors.

    Without this rule: nothing is reported, and the loss starts higher than it ended in the earlier run.

    Source: arXiv 2305.14314, and peft 0.21 `peft_model.py`, which does not compare the two bases; confirmed
    by running it.
    """
    adapter = spec.continued
    if adapter is None or adapter.bits == 0 or adapter.bits == spec.bits:
        return
    was = "an unquantized base" if adapter.bits is None else f"a base of {adapter.bits} bits"
    now = "an unquantized one" if spec.bits is None else f"one of {spec.bits} bits"
    yield Finding(
        spec.location("lora.from", f"trained on {was}"),
        f"the adapter was trained on {was}, and this run trains it on {now}",
        "write `lora` without `bits`" if adapter.bits is None else f"write `lora(bits = {adapter.bits}, from = ...)`",
        (spec.label("lora.bits", "the base here"),),
    )


@rule("XP934", "reference-without-the-adapter", "warning", reads=("method.beta", "method.reference_free"))
def reference_without(spec: Spec) -> Iterator[Finding]:
    """Before trl 1, a run that continues an adapter compares with the wrong reference model. The reference of a method
    such as dpo is then the base without any adapter, instead of the base with the initial adapter. trl 1.16 keeps a
    frozen copy of the initial adapter as the reference.

    Why it is bad: the trained model already differs from the reference at the first step, so the loss pulls the trained
    model back towards the base.

    Without this rule: TRL, LLaMA-Factory and axolotl compare with the plain base and report nothing.

    Source: trl 0.24 and 0.18 `dpo_trainer.py`, `grpo_trainer.py` (`disable_adapter`), trl 1.16 (`add_adapter("ref")`);
    confirmed by running them.
    """
    adapter, method = spec.continued, spec.text("method")
    if adapter is None or not spec.compares or method in spec.stack.facts.adapter_references:
        return
    other = able(lambda one: method in one.facts.adapter_references)
    yield Finding(
        spec.location("lora.from", "the policy starts from this adapter"),
        f"{method} uses the base model without the adapter as its reference",
        "merge the adapter (`save(merge)` of its run) and train the merged model with `lora`"
        + (f", or write `target {other}`" if other else ""),
        (spec.label("method", "the method"), spec.label("target", "the target")),
    )
