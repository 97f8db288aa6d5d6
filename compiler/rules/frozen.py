"""Models of which some layers are trained (XP470 to XP472)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.rule import Finding, rule
from xpc.compiler.spec import Spec


@rule("XP470", "freeze-beside-adapters")
def beside_adapters(spec: Spec) -> Iterator[Finding]:
    """Adapters freeze every weight of the model; modules that are trained beside them are `modules_to_save`.

    Source: peft 0.21 and 0.17 `tuners/tuners_utils.py` (`_mark_only_adapters_as_trainable`).
    """
    if spec.lora:
        yield Finding(
            spec.place("freeze", "some weights are trained"),
            f"`freeze` and `{spec.adapter}` cannot stand together",
            f"leave `freeze` out, or `{spec.adapter}`",
            (spec.label(spec.adapter, "adapters are trained"),),
        )


@rule("XP471", "nothing-is-trained")
def nothing_trained(spec: Spec) -> Iterator[Finding]:
    """`freeze` names what is not frozen: layers at the end, at the beginning, or modules outside of the layers.

    `layer_modules` chooses among the modules of those layers. Today, silently: a run of trl 1.16 without a trained
    weight goes to its end, and writes the model that it began with. Executed.
    """
    layers = [name for name in ("except_last", "except_first") if spec.get(f"freeze.{name}") is not None]
    if not layers and spec.names("freeze.layer_modules"):
        yield Finding(
            spec.place("freeze.layer_modules", "of which layers?"),
            "`layer_modules` without `except_last` or `except_first` chooses among nothing",
            "write `except_last = 2`",
            (spec.label("freeze"),),
            "except_last = 2",
        )
    elif not layers and not spec.names("freeze.except_modules"):
        yield Finding(
            spec.place("freeze", "everything"),
            "`freeze` leaves nothing that is trained",
            "write `freeze(except_last=2)`",
            replace="freeze(except_last=2)",
        )


@rule("XP472", "no-layer-is-frozen", "warning")
def no_layer_frozen(spec: Spec) -> Iterator[Finding]:
    """The layers that are excepted are all that the model has, so that only what stands around them is frozen.

    Nothing fails. It is more often a number of another model than what was meant.
    """
    facts = spec.model.facts
    names = [name for name in ("except_first", "except_last") if spec.get(f"freeze.{name}") is not None]
    count = sum(spec.integer(f"freeze.{name}") for name in names)
    if facts is not None and names and count >= facts.layers and not spec.names("freeze.layer_modules"):
        yield Finding(
            spec.place(f"freeze.{names[-1]}", f"{spec.model.name} has {facts.layers} layers"),
            f"{count} excepted layers leave none of {facts.layers} frozen",
            f"write `{names[-1]} = 2`",
            (spec.model.label,),
            f"{names[-1]} = 2",
        )


RULES = (beside_adapters, nothing_trained, no_layer_frozen)
