"""Rules about families with latent attention (MLA) and sparse attention, such as DeepSeek's (XP346, XP347)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import Path
from xpc.compiler.registry.linear_layers import HEADS
from xpc.compiler.rules.core.conditions import any_of, enabled, outside_of_the_registry
from xpc.compiler.rules.core.rule import Finding, rule, with_more, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks.modules import OFT, ends, last_names, paths, possible

WHEN = any_of(enabled("oft"), outside_of_the_registry)
EXPANDED = "kv_b_proj"
"""The layer that expands the latent keys and values for each head."""
STATED: tuple[Path, ...] = (
    "lora.block_size",
    "lora.rank",
    "lora.alpha",
    "lora.dropout",
    "lora.bits",
    "lora.modules_to_save",
)
"""Settings of an adapter. If a finding has to insert `targets` into the spec, it inserts `targets` after the first of
these settings that the spec states.
"""
INDEXED = ("indexer", "wq_b", "wk", "weights_proj")
"""Names of the indexer, the module that selects tokens for sparse attention, and of the indexer's linear layers."""


@rule("XP346", "rotated-latent-attention")
def rotated(spec: Spec) -> Iterator[Finding]:
    """`oft` cannot rotate `kv_b_proj`, the layer of latent attention (MLA) that expands keys and values for each head.
    The default targets, all-linear, include this layer.

    Why it is bad: transformers 5 passes four-dimensional inputs to `kv_b_proj`, which peft takes for inputs of a
    convolution.

    Without this rule: RuntimeError in the first step ("shape is invalid for input of size 0").

    Source: transformers 5.23 `models/deepseek_v3/modeling_deepseek_v3.py` (`expand_kv`), peft 0.21
    `tuners/oft/layer.py` (`OFTRotationModule`); confirmed by running it.
    """
    kind, targets = spec.model.model_type, spec.get("lora.targets")
    if not spec.flag("oft") or kind not in spec.stack.facts.rotations_fail:
        return
    if isinstance(targets, tuple) and not ends(EXPANDED, map(str, targets)):
        return
    known = last_names(paths(possible(spec.stack.name, kind, spec.model.config), OFT))
    written = [str(one) for one in targets] if isinstance(targets, tuple) else list(known)
    legal = [one for one in written if one.rpartition(".")[2] not in (EXPANDED, *HEADS, "embed_tokens")]
    why = f"oft cannot rotate `{EXPANDED}` of {kind} on {spec.stack.name}"
    yield _with_targets(spec, f"includes `{EXPANDED}`", why, ", ".join(legal or ["o_proj"]))


def _with_targets(spec: Spec, fact: str, message: str, layers: str) -> Finding:
    """A finding about the adapter's targets. It suggests the targets in `layers`, which an editor can insert."""
    targets = f"targets = [{layers}]"
    if isinstance(spec.get("lora.targets"), tuple):
        return Finding(spec.location("lora.targets", fact), message, write(targets), (spec.model.label,))
    stated = next((path for path in STATED if spec.written(path)), None)
    if stated is None:
        clause = write(f"{spec.adapter}({targets.replace(' = ', '=')})")
        return Finding(spec.location(spec.adapter, fact), message, clause, (spec.model.label,))
    location = spec.location(stated, f"without `targets`, the adapter {fact}")
    inside = f"write `{targets}` in `{spec.adapter}`"
    return Finding(location, message, inside, (spec.model.label,), with_more(location, targets))


@rule("XP347", "indexer-without-gradient")
def indexer(spec: Spec) -> Iterator[Finding]:
    """The loss must reach every weight that the spec trains. In some families, such as deepseek_v32 and hy_v4, a layer
    has an indexer that selects the tokens to which attention attends. A selection has no gradient. The rule accepts
    adapters on other layers, and a spec with `freeze`.

    Why it is bad: the indexer stays as it was loaded, while the layers for which it selects tokens change. Adapters on
    the indexer stay zero.

    Without this rule: nothing is reported; under DDP, some runs end with "Expected to have finished reduction".

    Source: transformers 5.23 `models/hy_v4/modeling_hy_v4.py` (`HYV4Indexer.forward` is decorated with `no_grad`);
    confirmed by running it on tiny models of each family.
    """
    kind, targets = spec.model.model_type, spec.get("lora.targets")
    if kind not in spec.stack.facts.untrained_indexers or (spec.flag("freeze") and not spec.lora):
        return
    if spec.lora and isinstance(targets, tuple) and not any(set(str(one).split(".")) & {*INDEXED} for one in targets):
        return
    layers = "q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj"
    nothing = f"the indexer of {kind} gets no gradient"
    if spec.lora:
        yield _with_targets(spec, "includes the indexer", f"{nothing}, so its adapters learn nothing", layers)
    else:
        help = f"train adapters on other layers: `lora(targets=[{layers}])`"
        yield Finding(spec.model.label, f"{nothing}, so it learns nothing", help)
