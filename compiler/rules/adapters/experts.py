"""Rules about adapters in a mixture of experts: which of its parts and layers the targets name (XP600, XP609)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.registry.linear_layers import TABLES
from xpc.compiler.rules.adapters.layers import adaptable
from xpc.compiler.rules.core.conditions import adapters
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.compiler.stacks.fused_experts import names
from xpc.compiler.stacks.modules import EXPERTS, LORA, PARAMETER, ends, numbered, part, paths, possible

WHEN = adapters

UNNAMED = ("the attention", "the router")
"""Parts of a layer that are not experts. If `targets` names only these parts, the user intends that experts get no
adapters.
"""


@rule("XP600", "parts-of-a-mixture", "note")
def parts_of_a_mixture(spec: Spec) -> Iterator[Finding]:
    """In a mixture of experts, layers such as `gate_proj` exist in up to three parts: the experts, the shared expert
    and the dense layers. `targets` should reach all three. This note lists the parts that get an adapter and the parts
    that do not. If the experts get no adapter, the note becomes a warning.

    Why it is bad: the experts are most of the model. In Qwen1.5 MoE on trl-1.16, `targets = [gate_proj]` adapts only
    the shared expert, because transformers 5 stacks the other experts in one parameter. In DeepSeek V3, it adapts the
    experts but not the shared expert.

    Without this rule: nothing is reported.

    Source: peft 0.21 `utils/transformers_weight_conversion.py`; confirmed by running it on every family
    (`tests/stacks/test_expert_targets.py`).
    """
    known, targets = possible(spec.stack.name, spec.model.model_type, spec.model.config), spec.get("lora.targets")
    there = {part(path, kinds) for path, kinds in known.items() if kinds and not _in_table(path)}
    if not spec.lora or EXPERTS not in there:
        return
    adapted_ones = adapted_paths(spec)
    adapted = {part(path, LORA) for path in adapted_ones}
    if spec.names("lora.parameters"):
        adapted.add(EXPERTS)
    if isinstance(targets, tuple) and not any(_is_plain(one, adapted_ones) for one in targets):
        return
    without = sorted(there - adapted - {*UNNAMED})
    if not without or not adapted:
        return
    stacked = sorted(
        {_stacked(one) for one in paths(known, PARAMETER) if part(one, PARAMETER) == EXPERTS}, reverse=True
    )
    if EXPERTS in without and stacked and spec.low_rank:
        advice = f"`parameters = [{', '.join(stacked)}]` adapts the experts"
    elif EXPERTS in without:
        advice = f"write `lora` to adapt the experts: {spec.adapter} adapts only linear layers"
    else:
        advice = "name the modules in `modules_to_save` to train them completely"
    yield Finding(
        spec.location("lora.targets", f"on {_listed(sorted(adapted))}"),
        f"the adapters of {spec.model.name} are not on {_listed(without)}",
        advice,
        (spec.model.label, spec.label("target", "the target")),
        severity="warning" if EXPERTS in without else None,
    )


def adapted_paths(spec: Spec) -> tuple[str, ...]:
    """The paths of the modules that get an adapter, such as `layers.N.mlp.gate_proj`, where N stands for any layer
    number that neither the target nor `within` states. Empty for an unknown family.
    """
    targets, within = spec.get("lora.targets"), str(spec.get("lora.within") or "")
    known = possible(spec.stack.name, spec.model.model_type, spec.model.config)
    legal = paths(known, adaptable(spec))
    if isinstance(targets, tuple):
        found = (numbered(path, str(target), within) for path in legal for target in targets)
        return tuple(dict.fromkeys(path for path in found if path))
    return tuple(path for path in legal if not _in_table(path))


def _in_table(path: str) -> bool:
    """Whether a path names the embeddings or the output head. The target `all-linear` includes neither of the two."""
    return path.rpartition(".")[2] in TABLES


def _is_plain(target: object, legal: tuple[str, ...]) -> bool:
    """Whether a target is a plain name, without a path, of a layer inside experts: true for `gate_proj`, false for
    `shared_expert.gate_proj`.
    """
    name = str(target)
    found = any(part(path, LORA) not in UNNAMED for path in legal if ends(name, (path,)))
    return found and "." not in name and "shared" not in name


def _stacked(path: str) -> str:
    """The name of a stacked parameter, as `parameters` states it: `gate_up_proj`, or `input_linear.weight`."""
    module, last = path.split(".")[-2:]
    return f"{module}.{last}" if last == "weight" else last


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


@rule("XP609", "experts-of-one-layer")
def experts_of_one_layer(spec: Spec) -> Iterator[Finding]:
    """If `targets` names stacked experts or their router, the adapters cannot be restricted to some layers by `within`
    or by a layer number in the target. `parameters` can restrict them: it names a parameter of a single layer.

    Why it is bad: layers that the spec leaves out get adapters, too.

    Without this rule: PEFT keeps only the last part of the target's path and silently adapts every layer.

    Source: peft 0.21 `utils/transformers_weight_conversion.py`; confirmed by running it.
    """
    converted = names(spec.stack, spec.model.model_type)
    if not spec.low_rank or not converted:
        return
    for one in spec.names("lora.targets"):
        numbered = any(word.isdecimal() for word in one.split("."))
        last = one.rpartition(".")[2]
        if last not in (*converted, "gate") or not (numbered or spec.get("lora.within") is not None):
            continue
        legal = paths(possible(spec.stack.name, spec.model.model_type, spec.model.config), LORA)
        if not ends(one, legal):
            continue
        stacked = "down_proj" if last == converted[2] else "gate.weight" if last == "gate" else "gate_up_proj"
        advice = f"`{last}` adapts every layer, `parameters = [{one.rpartition('.')[0]}.{stacked}]` only this layer"
        yield Finding(
            spec.location("lora.targets"),
            f"an adapter on `{one[:60]}` would be on every layer of {spec.model.name}",
            advice if numbered else f"leave `{last}` out, or leave `within` out for adapters on every layer",
            (spec.model.label, spec.label("lora.within")),
        )
        return
