"""Models of which some layers are trained (XP470 to XP472, XP474)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import IntegerPath
from xpc.compiler.rules.core.conditions import on
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

WHEN = on("freeze")

NAMED: Final = ("freeze.except_modules", "freeze.except_parameters")
LAYERS: Final = ("freeze.except_first", "freeze.except_last")


@rule("XP470", "freeze-beside-adapters")
def beside_adapters(spec: Spec) -> Iterator[Finding]:
    """Adapters freeze every weight of the model; modules that are trained beside them are `modules_to_save`.

    Source: peft 0.21 and 0.17 `tuners/tuners_utils.py` (`_mark_only_adapters_as_trainable`).
    """
    if spec.lora:
        yield Finding(
            spec.place("freeze", "some weights are trained"),
            f"`freeze` and `{spec.adapter}` cannot be combined",
            f"leave `freeze` out, or `{spec.adapter}`",
            (spec.label(spec.adapter, "adapters are trained"),),
        )


@rule("XP471", "nothing-is-trained")
def nothing_trained(spec: Spec) -> Iterator[Finding]:
    """`freeze` names what is not frozen: layers at the end, at the beginning, or modules outside of the layers.

    `layer_modules` chooses among the modules of those layers. Today, silently: a run of trl 1.16 without a trained
    weight that recomputes activations goes to its end, and writes the model that it began with; else RuntimeError in
    the first step. Executed.
    """
    layers = [path for path in LAYERS if spec.get(path) is not None]
    if not layers and spec.names("freeze.layer_modules"):
        yield Finding(
            spec.place("freeze.layer_modules", "of which layers?"),
            "`layer_modules` without `except_last` or `except_first` chooses among nothing",
            write("except_last = 2"),
            (spec.label("freeze"),),
        )
    elif not layers and not spec.names("freeze.except_modules") and not spec.names("freeze.except_parameters"):
        yield Finding(
            spec.place("freeze", "everything"),
            "`freeze` leaves nothing that is trained",
            write("freeze(except_last=2)"),
        )


@rule("XP472", "no-layer-is-frozen", "warning")
def no_layer_frozen(spec: Spec) -> Iterator[Finding]:
    """The layers that are excepted are all that the model has, so that only what stands around them is frozen.

    Nothing fails. It is more often a number of another model than what was meant.
    """
    facts = spec.model.facts
    paths: list[IntegerPath] = [path for path in LAYERS if spec.get(path) is not None]
    count = sum(spec.integer(path) for path in paths)
    if facts is not None and paths and count >= facts.layers and not spec.names("freeze.layer_modules"):
        name = paths[-1].rpartition(".")[2]
        fewer = facts.layers - 1 - (count - spec.integer(paths[-1]))
        yield Finding(
            spec.place(paths[-1], f"{spec.model.name} has {facts.layers} layers"),
            f"{count} excepted layers leave none of {facts.layers} frozen",
            write(f"{name} = {min(2, fewer)}") if fewer > 0 else f"leave `{name}` out",
            (spec.model.label,),
        )


@rule("XP574", "freeze-names-no-weight")
def no_weight(spec: Spec) -> Iterator[Finding]:
    """`freeze` names modules and weights that the model has; a reward model has a score where the head would be.

    A name that the layers of other families have, and not those of the model, is refused here, and so is one that
    nothing outside of its layers has; a mixture of experts is asked at the launch. Today: a run ends once the model is
    loaded. Source: the runtime's `frozen_weights.py`; transformers 5.23 and 4.52 `modeling_*.py`, every family built.
    """
    from xpc.compiler.registry.linear_layers import HEADS
    from xpc.compiler.rules.adapters.trained_parts import absent
    from xpc.compiler.rules.core.modules import MODULES, inside, names, outside

    family, known = spec.model.model_type or "", spec.model.facts
    layer_modules = spec.names("freeze.layer_modules") if family in MODULES else ()
    told = absent(spec, layer_modules)  # XP466 has said so
    for one in layer_modules:
        if one in names() and one not in inside(family) and one not in told:
            parts = ", ".join(sorted(inside(family)))
            yield Finding(
                spec.place("freeze.layer_modules", f"a layer of {family} has {parts}"),
                f"no layer of {family} has a module `{one}`",
                "leave it out, or name one of those",
            )
    others = spec.names("freeze.except_modules") if family in MODULES and known and not known.experts else ()
    told = [*absent(spec, others), *(HEADS if spec.method.scores else ())]
    for one in others:
        if one not in outside(spec, family) and one not in told:
            legal = [name for name in outside(spec, family) if name.partition("_")[0] != "project"]
            yield Finding(
                spec.place("freeze.except_modules", f"outside of its layers {family} has {', '.join(legal)}"),
                f"{family} has no weights in `{one[:60]}` outside of its layers",
                "leave it out, or name one of those; `layer_modules` names what stands in the layers",
            )
    for path in NAMED if spec.text("method") == "reward" else ():
        for one in spec.names(path):
            if any(head in one for head in HEADS):
                yield Finding(
                    spec.place(path, "its score stands there"),
                    f"a reward model has no `{one[:60]}`",
                    "leave it out: the score is trained whatever is frozen",
                    (spec.label("method"),),
                )


@rule("XP474", "pattern-that-cannot-be-read")
def unreadable_pattern(spec: Spec) -> Iterator[Finding]:
    """`except_parameters` holds regular expressions, as Python reads them.

    A range of rows behind a name, as axolotl has it (`embed_tokens.weight[:32000]`), is read as a set of letters.
    Today: `re.error`, once the model is loaded. Source: Python's `re`.
    """
    import re
    import warnings

    for one in spec.names("freeze.except_parameters"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what a later Python may read otherwise: it is no finding of ours
                re.compile(one)
            wrong = "a range of rows" if re.search(r"\[\d*:\d*\]$", one) else ""
        except (re.error, OverflowError, RecursionError) as error:
            wrong = str(error)
        if wrong:
            yield Finding(
                spec.place("freeze.except_parameters", wrong),
                f"`{one[:60]}` is not a pattern of names",
                write('except_parameters = ["model.embed_tokens"]'),
                (spec.label("freeze"),),
            )
