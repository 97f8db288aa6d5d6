"""Rules about families with latent attention (MLA) and sparse attention, such as DeepSeek's (XP346, XP347)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.registry.linear_layers import HEADS
from xpc.compiler.rules.core.conditions import any_of, enabled, outside_of_the_registry
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks.modules import OFT, ends, last_names, paths, possible

WHEN = any_of(enabled("oft"), outside_of_the_registry)
EXPANDED = "kv_b_proj"
"""The layer that expands the latent keys and values for each head."""
INDEXED = ("indexer", "wq_b", "wk", "weights_proj")
"""Names of indexers and of their linear layers."""


@rule("XP346", "rotated-latent-attention")
def rotated(spec: Spec) -> Iterator[Finding]:
    """`oft` cannot rotate `kv_b_proj`, the layer of latent attention (MLA) that expands keys and values for each head.
    The default targets, all-linear, include this layer.

    Why it is bad: transformers 5 passes inputs of four dimensions to this layer, and peft takes such inputs for those
    of a convolution.

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
    layers, size = ", ".join(legal or ["o_proj"]), spec.get("lora.block_size")
    blocks = f"block_size={size}, " if size else ""
    yield Finding(
        spec.location("lora.targets", f"includes `{EXPANDED}`"),
        f"oft cannot rotate `{EXPANDED}` of {kind} on {spec.stack.name}",
        write(f"targets = [{layers}]") if isinstance(targets, tuple) else f"write `oft({blocks}targets=[{layers}])`",
        (spec.model.label,),
    )


@rule("XP347", "indexer-without-gradient")
def indexer(spec: Spec) -> Iterator[Finding]:
    """The loss must reach every weight that the spec trains. In some families, such as deepseek_v32 and hy_v4, a layer
    has an indexer that selects the tokens to which attention attends. A selection has no gradient. Adapters on other
    layers, and `freeze` with the parts to train, are accepted.

    Why it is bad: the indexer stays as it was loaded, while the layers that it selects tokens for change. Adapters on
    it stay zero.

    Without this rule: nothing is reported; under DDP, some runs end with "Expected to have finished reduction".

    Source: transformers 5.23 `models/hy_v4/modeling_hy_v4.py` (`HYV4Indexer.forward` is decorated with `no_grad`);
    confirmed by running it on tiny models of each family.
    """
    kind, targets = spec.model.model_type, spec.get("lora.targets")
    if kind not in spec.stack.facts.untrained_indexers or (spec.flag("freeze") and not spec.lora):
        return
    if spec.lora and isinstance(targets, tuple) and not any(set(str(one).split(".")) & {*INDEXED} for one in targets):
        return
    layers = "targets=[q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj]"
    written = isinstance(targets, tuple)
    stated = layers.replace("=", " = ") if written else f"lora({layers})"
    path = "lora.targets" if written else spec.adapter
    yield Finding(
        spec.location(path, "includes the indexer") if spec.lora else spec.model.label,
        f"the indexer of {kind} gets no gradient, so {'its adapters learn' if spec.lora else 'it learns'} nothing",
        write(stated) if spec.lora else f"train adapters on other layers: `{stated}`",
        (spec.model.label,) if spec.lora else (),
    )
