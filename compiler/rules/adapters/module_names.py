"""Find names in a spec that no module, layer or parameter of the model has, such as `layers.30.mlp` if the model has 24
layers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from xpc.compiler.language.setting import Path
from xpc.compiler.registry.family_modules import family_modules
from xpc.compiler.registry.linear_layers import HEADS
from xpc.compiler.rules.core.modules import container_names, heads
from xpc.compiler.rules.core.rule import Finding
from xpc.compiler.spec import Spec
from xpc.compiler.stacks.modules import PARAMETER, ends, last_names, modules, paths

LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,9})(?=\.|$)")
"""Matches the number of a layer after the name that a family has for its list of layers: `layers.30`, `h.30`."""


def missing_layer(spec: Spec, path: Path) -> Iterator[Finding]:
    """Report the first name in the setting `path` that has a layer number too high for the model."""
    facts, written = spec.model.facts, spec.get(path)
    names = written if isinstance(written, tuple) else (written,)
    if facts is None:
        return
    for name in names:
        found = LAYER.search(name) if isinstance(name, str) else None
        if found is not None and int(found[1]) >= facts.layers:
            yield Finding(
                spec.location(path, f"the model has the layers 0 to {facts.layers - 1:,}"),
                f"{spec.model.name} has no layer {int(found[1]):,}: `{name[:60]}` names nothing",
                f"name a layer from 0 to {facts.layers - 1:,}",
                (spec.model.label,),
            )
            return


def last_module_names(spec: Spec) -> tuple[str, ...] | None:
    """The last components of the names of the model's modules, such as `q_proj`; None for an unknown family."""
    found = last_names(path for path in module_paths(spec) if not path.endswith(".N"))
    return tuple(dict.fromkeys((*found, *heads(spec, spec.model.model_type or "")))) if found else None


def _known(spec: Spec) -> Mapping[str, str]:
    return modules(spec.stack.name, spec.model.model_type)


def module_paths(spec: Spec) -> tuple[str, ...]:
    """The paths of the model's modules on this stack; empty for an unknown family. A reward model has `score` instead
    of an output head.
    """
    known = _known(spec)
    parts = tuple(path for path, kinds in known.items() if PARAMETER not in kinds)
    return (*(path for path in parts if path not in HEADS), "score") if parts and spec.method.scores else parts


def named_parts(spec: Spec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return two tuples of names from modules.json: the modules inside a decoder layer, and the modules outside the
    layers. The rules about `freeze` compare each name with these names. Both tuples are empty for an unknown family,
    and for a family with several lists of layers.
    """
    known = module_paths(spec)
    if len({path.partition(".N.")[0] for path in known if ".N." in path}) != 1:
        return (), ()
    stacked = tuple(f"{path.rpartition('.')[0]}." for path in paths(_known(spec), PARAMETER))
    inside: dict[str, None] = {}
    outside: dict[str, None] = {}
    for path in known:
        home, layer, rest = f"{path}.".partition(".N.")
        if path.startswith(stacked):
            continue  # for stacked experts, PEFT accepts names of separate layers; the model has no such layers
        if rest:
            inside.update(dict.fromkeys(one for one in rest.split(".") if one not in ("", "N")))
        elif not layer and f"{path}.N" not in known:
            outside.update(dict.fromkeys(home.strip(".").split(".")))
    return tuple(inside), tuple(outside)


def absent(spec: Spec, names: tuple[str, ...]) -> list[str]:
    """The names in `names` that no module of the model has. Empty for an unknown family and for a mixture of experts,
    because their modules are not checked. Names of norms are never returned, because families name norms in many ways;
    the rule XP574 checks norms outside of the layers.
    """
    facts = spec.model.facts
    if facts is None or facts.experts or facts.model_type not in family_modules():
        return []
    known = (*family_modules()[facts.model_type].names, *heads(spec, facts.model_type), *container_names())
    last = [(one, one.rpartition(".")[2]) for one in names]
    return [one for one, end in last if end not in known and "norm" not in end and not end.startswith("ln")]


def stacked_parameters(known: Mapping[str, str]) -> tuple[str, ...]:
    """The paths of parameters with stacked experts. modules.json marks only `gate_up_proj`, because PEFT does not
    rename `down_proj`. So this function adds a `down_proj` next to each `gate_up_proj`.
    """
    stacked = paths(known, PARAMETER)
    siblings = (f"{path.rpartition('.')[0]}.down_proj" for path in stacked if path.endswith(".gate_up_proj"))
    return tuple(dict.fromkeys((*stacked, *siblings)))


def is_parameter(name: str, known: Mapping[str, str]) -> bool:
    """Whether a name can be a parameter: true for stacked experts, and for the weight or bias of a module in
    modules.json. modules.json does not list further parameters of a module, such as `sinks`. For the name of such a
    parameter, the answer is true without a check.
    """
    module, _, last = name.rpartition(".")
    experts = [path.rpartition(".")[0] for path in stacked_parameters(known)]
    if module and ends(module, experts) and not ends(name, stacked_parameters(known)):
        return last.endswith("_bias")
    if ends(name, stacked_parameters(known)) or (last in ("weight", "bias") and ends(module, known)):
        return True
    return last not in (*last_names(known), "gate_up_proj", "down_proj") and (not module or ends(module, known))


def contains(part: str, known: tuple[str, ...]) -> bool:
    """Whether a dotted path names a module that contains other modules, such as `self_attn`."""
    inside = re.sub(r"(?<![^.])\d+(?![^.])", "N", part)
    return any(f".{inside}." in f".{path}" for path in known)
