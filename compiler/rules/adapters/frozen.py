"""Rules about `freeze`, which trains only some layers of a model (XP470 to XP472, XP474, XP574)."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator

from xpc.compiler.language.setting import IntegerPath, NamesPath
from xpc.compiler.registry.family_modules import family_modules
from xpc.compiler.registry.linear_layers import HEADS
from xpc.compiler.rules.adapters.module_names import absent, named_parts
from xpc.compiler.rules.core.conditions import enabled
from xpc.compiler.rules.core.modules import all_layer_modules, heads, layer_modules, outer_modules_and_head
from xpc.compiler.rules.core.rule import Finding, rule, with_more, write
from xpc.compiler.spec import Spec

WHEN = enabled("freeze")

NAMED: tuple[NamesPath, ...] = ("freeze.except_modules", "freeze.except_parameters")
LAYERS: tuple[IntegerPath, ...] = ("freeze.except_first", "freeze.except_last")


@rule("XP470", "freeze-beside-adapters")
def with_adapters(spec: Spec) -> Iterator[Finding]:
    """`freeze` cannot be combined with adapters: with adapters, all weights of the model are already frozen. To train
    some modules together with adapters, name them in `modules_to_save`.

    Why it is bad: `freeze` and the adapters contradict each other about which weights are trained.

    Without this rule: peft makes only the adapters trainable and ignores what `freeze` leaves trainable.

    Source: peft 0.21 and 0.17 `tuners/tuners_utils.py` (`_mark_only_adapters_as_trainable`); read, not run.
    """
    if spec.lora:
        yield Finding(
            spec.location("freeze", "some weights are trained"),
            f"`freeze` and `{spec.adapter}` cannot be combined",
            f"leave `freeze` out, or `{spec.adapter}`",
            (spec.label(spec.adapter, "adapters are trained"),),
        )


@rule("XP471", "nothing-is-trained")
def nothing_trained(spec: Spec) -> Iterator[Finding]:
    """`freeze` must leave something trainable: the last layers, the first layers, or modules outside of the layers. If
    `layer_modules` is set, only the modules that it names are trained in these layers.

    Why it is bad: a run without a trained weight learns nothing.

    Without this rule: if activations are recomputed, trl 1.16 silently runs to the end and saves the initial model.
    Without recomputation, the first step raises RuntimeError.

    Source: trl 1.16; confirmed by running it.
    """
    layers = [path for path in LAYERS if spec.get(path) is not None]
    if any(path.startswith("freeze.") for path in spec.wrong):
        return
    if not layers and spec.names("freeze.layer_modules"):
        yield Finding(
            spec.location("freeze.layer_modules", "names no layers"),
            "`layer_modules` needs `except_last` or `except_first`",
            "write `except_last = 2` next to it",
            (spec.label("freeze"),),
            with_more(spec.location("freeze.layer_modules"), "except_last = 2"),
        )
    elif not layers and not spec.names("freeze.except_modules") and not spec.names("freeze.except_parameters"):
        yield Finding(
            spec.location("freeze", "freezes everything"),
            "`freeze` leaves nothing to train",
            write("freeze(except_last=2)"),
        )


@rule("XP472", "no-layer-is-frozen", "warning")
def no_layer_frozen(spec: Spec) -> Iterator[Finding]:
    """`freeze` should leave fewer layers trainable than the model has. Otherwise all layers are trained, and `freeze`
    freezes only the modules outside of the layers.

    Why it is bad: the number of layers in `freeze` was probably meant for a model with more layers.

    Without this rule: nothing fails, because training every layer is legal.

    Source: the number of layers in the model's configuration; no library refuses it.
    """
    facts = spec.model.facts
    paths: list[IntegerPath] = [path for path in LAYERS if spec.get(path) is not None]
    count = sum(spec.integer(path) for path in paths)
    if facts is not None and paths and count >= facts.layers and not spec.names("freeze.layer_modules"):
        name = paths[-1].rpartition(".")[2]
        fewer = facts.layers - 1 - (count - spec.integer(paths[-1]))
        yield Finding(
            spec.location(paths[-1], f"{spec.model.name} has {facts.layers} layers"),
            f"with {count} excepted layers, none of the {facts.layers} layers is frozen",
            write(f"{name} = {min(2, fewer)}") if fewer > 0 else f"leave `{name}` out",
            (spec.model.label,),
        )


@rule("XP574", "freeze-names-no-weight")
def no_weight(spec: Spec) -> Iterator[Finding]:
    """`freeze` must name modules and weights that the model has. `layer_modules` cannot name a module that only layers
    of other families have. `except_modules` cannot name a module that the model lacks: a reward model, for example, has
    a score head instead of `lm_head`. Each name is the name of a single module: `experts`, and not `mlp.experts`. A
    pattern in `except_parameters` matches from the beginning of a parameter's full name, so it begins like
    `model.layers.27` and not like `layers.27`.

    Why it is bad: a name that the model lacks matches nothing, so the weights that should stay trainable are frozen.

    Without this rule: the run stops with an error after it has loaded the model.

    Source: the runtime's `frozen_weights.py`; transformers 5.23 and 4.52 `modeling_*.py`; confirmed with a model of
    every family.
    """
    family, known = spec.model.model_type or "", spec.model.facts
    inner = spec.names("freeze.layer_modules") if family in family_modules() else ()
    reported = absent(spec, inner)  # the rule XP466 already reports names that the model lacks
    for one in inner:
        if one in all_layer_modules() and one not in layer_modules(family) and one not in reported:
            parts = ", ".join(sorted(layer_modules(family)))
            yield Finding(
                spec.location("freeze.layer_modules", f"a layer of {family} has {parts}"),
                f"no layer of {family} has a module `{one}`",
                f"leave the name out, or name one of {parts}",
            )
    if family not in family_modules():
        yield from _in_no_part(spec, family)
    others = spec.names("freeze.except_modules") if family in family_modules() and known and not known.experts else ()
    reported = [*absent(spec, others), *(HEADS if spec.method.scores else ())]
    for one in others:
        if one not in outer_modules_and_head(spec, family) and one not in reported:
            legal = [name for name in outer_modules_and_head(spec, family) if name.partition("_")[0] != "project"]
            yield Finding(
                spec.location("freeze.except_modules", f"outside of its layers {family} has {', '.join(legal)}"),
                f"{family} has no weights in `{one[:60]}` outside of its layers",
                f"leave it out, or name one of {', '.join(legal)}; `layer_modules` names modules inside the layers",
            )
    yield from _patterns_of_no_weight(spec, family)
    for path in NAMED if spec.text("method") == "reward" else ():
        for one in spec.names(path):
            if any(head in one for head in HEADS):
                yield Finding(
                    spec.location(path, "a reward model has a score head instead"),
                    f"a reward model has no `{one[:60]}`",
                    "leave the name out: the score head is always trained",
                    (spec.label("method"),),
                )


def _in_no_part(spec: Spec, family: str) -> Iterator[Finding]:
    """Report names in `freeze` that no module of the model has. This check is for families whose modules only
    modules.json lists, such as mixtures of experts.
    """
    inside, outside = named_parts(spec)
    places: tuple[tuple[NamesPath, tuple[str, ...], str], ...] = (
        ("freeze.layer_modules", inside, "in"), ("freeze.except_modules", outside, "outside of"),
    )  # fmt: skip
    for path, legal, where in places:
        for one in spec.names(path) if legal else ():
            if one not in legal:
                yield Finding(
                    spec.location(path, f"{where} its layers {family} has {', '.join(legal)}"),
                    f"{family} has no weights in `{one[:60]}` {where} its layers",
                    f"leave it out, or name one of {', '.join(legal)}"
                    + ("; `layer_modules` names modules inside the layers" if one in inside else ""),
                )


def _patterns_of_no_weight(spec: Spec, family: str) -> Iterator[Finding]:
    """Report a pattern if no parameter's name begins with it: `layers.27` instead of `model.layers.27`."""
    if family not in family_modules() or spec.method.scores:
        return
    outermost = family_modules()[family].containers[0]
    beginnings = (f"{outermost}.", *(f"{head}." for head in heads(spec, family)))
    for one in spec.names("freeze.except_parameters"):
        found = re.match(r"\^?((?:\w|\\\.|\.(?![*+?{]))+)", one)
        plain = "" if found is None or "|" in one else found[1].replace("\\", "")
        followed = one[found.end() :] if found is not None else ""
        # `*`, `?` and `{` make the character before them optional, so a name need not begin with this character
        plain = plain[:-1] if followed[:1] in ("*", "?", "{") else plain
        named = f"{outermost}.{one.removeprefix('^')}"
        legal = [named if other == one else other for other in spec.names("freeze.except_parameters")]
        if (
            plain
            and not _unreadable(one)
            and not any(all(a in (b, ".") for a, b in zip(plain, start)) for start in beginnings)
        ):
            yield Finding(
                spec.location("freeze.except_parameters", f"names begin with `{beginnings[0]}` or `{beginnings[1]}`"),
                f"no parameter of {family} begins with `{plain[:60]}`",
                write(f"except_parameters = {json.dumps(legal)}", ", if you mean this layer"),
                (spec.model.label,),
            )


def _unreadable(pattern: str) -> str:
    """The reason why `pattern` is not a regular expression for names of parameters, or ""."""
    try:
        with warnings.catch_warnings():
            # ignore Python's warning that a later version of Python will interpret the pattern differently
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)
    return "a range of rows" if re.search(r"\[\d*:\d*\]$", pattern) else ""


@rule("XP474", "pattern-that-cannot-be-read")
def unreadable_pattern(spec: Spec) -> Iterator[Finding]:
    """`except_parameters` must contain regular expressions of Python. A range of rows in axolotl's notation, such as
    `embed_tokens.weight[:32000]`, would be read as a regular expression, in which the brackets mean a set of
    characters.

    Why it is bad: a pattern in another notation selects other weights than the user intends.

    Without this rule: Python raises `re.error` after the model is loaded.

    Source: Python's `re`.
    """
    for one in spec.names("freeze.except_parameters"):
        wrong = _unreadable(one)
        if wrong:
            yield Finding(
                spec.location("freeze.except_parameters", wrong),
                f"`{one[:60]}` is not a pattern of parameter names",
                write('except_parameters = ["model.embed_tokens"]'),
                (spec.label("freeze"),),
            )
