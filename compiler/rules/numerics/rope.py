"""Rules about `rope`, the setting that scales rotary positions. They check that the model supports the scaling, that
all programs of the run read it, and that the lengths of rows suit it (XP132 to XP134, XP149, XP170).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler import registry
from xpc.compiler.rules.core.conditions import has_value
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec

WHEN = has_value("model.rope")

SCALED = (
    "deepseek-coder-", "deepseek-r1-distill-llama-", "llama-3.1-", "llama-3.2-", "llama-3.3-", "nous-llama-3.2-",
    "phi-3-mini-128k", "phi-3.5-mini", "phi-4-mini",
)  # fmt: skip
"""Beginnings of aliases of registered models whose published config.json already scales rotary positions."""


def own_scaling(spec: Spec) -> str | None:
    """The type of scaling in the model's config.json, such as "llama3". None if there is no scaling, or if config.json
    is unknown.
    """
    for name in ("rope_parameters", "rope_scaling"):
        found = spec.model.config.get(name)
        kind = (found.get("rope_type") or found.get("type")) if isinstance(found, dict) else None
        if isinstance(kind, str) and kind != "default":
            return kind
    return "scaled" if spec.model.name.startswith(SCALED) else None


@rule("XP132", "rope-scaled-twice")
def scaled_twice(spec: Spec) -> Iterator[Finding]:
    """`rope` cannot be set for a model whose config.json already scales its positions. Examples are Llama 3.1, Phi 3
    with a context of 128k, and a model that was trained with `rope` and saved.

    Why it is bad: the new scaling would replace the scaling with which the weights were trained.

    Without this rule: launch.sh stops when it loads the model.

    Source: transformers 5.23 `modeling_rope_utils.py`: a configuration has one scaling; confirmed by running it.
    """
    kind = own_scaling(spec)
    if kind is not None:
        yield Finding(
            spec.location("model.rope", "a second scaling"),
            f"the positions of {spec.model.name} are scaled already"
            + (f" ({kind})" if kind != "scaled" else "")
            + ", in its config.json",
            "leave `rope` out",
            (spec.model.label,),
        )


@rule("XP133", "rope-not-known-later")
def not_known_later(spec: Spec) -> Iterator[Finding]:
    """`rope` cannot be used with vLLM, and a run with adapters needs `save(merge)`. `rope` changes the config.json of
    the trained model only. vLLM loads the original model, whose config.json has no scaling. The folder of an adapter
    has no config.json of the model, so the adapter is later used with its original base, also without the scaling. If
    adapters cannot be merged (a base of 4 or 8 bits, zero3, FSDP), this is only a warning, unless the run is evaluated
    by tasks.

    Why it is bad: with vLLM, completions are generated with other positions than the trained model uses. An adapter is
    used with other positions than those it was trained on.

    Without this rule: nothing is reported; the model computes with other positions than in training.

    Source: trl 1.16 `grpo_trainer.py` (vLLM gets the model's name), peft 0.20 `peft_model.py` (`from_pretrained` gets
    the base from its caller); read, not run.
    """
    in_the_model = "write the scaling into the config.json of a local model, and train its folder"
    if spec.online and spec.flag("method.vllm"):
        yield Finding(
            spec.location("model.rope", "vLLM does not read `rope`"),
            "vLLM loads the model without the scaling of `rope`",
            f"leave `vllm` out, or {in_the_model}",
            (spec.location("method.vllm"),),
        )
    if spec.lora and not spec.flag("save.merge"):
        merges = spec.bits is None and not spec.weights_sharded
        evaluated = spec.get("eval.tasks") is not None
        use = (
            "leave `tasks` out"
            if evaluated
            else "load the adapter with the code in its README.md, which sets the scaling"
        )
        yield Finding(
            spec.location("model.rope", "not saved in the adapter's folder"),
            "an adapter is saved without the scaling of `rope`",
            "write `save(merge)`, which also saves the complete model" if merges else f"{use}, or {in_the_model}",
            (spec.location(spec.adapter),),
            severity="error" if merges or evaluated else "warning",
        )


@rule("XP134", "positions-not-scaled")
def not_scaled(spec: Spec) -> Iterator[Finding]:
    """`rope` needs a model family for which the target's transformers implements all four kinds of scaling: linear,
    dynamic, yarn and llama3. Families without rotary positions have no code for scaling, and some families compute
    rotary positions in a way of their own.

    Why it is bad: `rope` would have no effect, or the model would fail.

    Without this rule: the family's code silently ignores the scaling. The trainer of a bundle checks the loaded model,
    and stops if its positions are not scaled as the spec says.

    Source: tested with a tiny model of every family and each scaling (`tests/stacks/test_stack_families.py`).
    """
    family = spec.model.model_type
    if family is None or family in spec.stack.facts.scaled_families:
        return
    yield Finding(
        spec.location("model.rope", f"the family {family}"),
        f"the positions of {spec.model.name} cannot be scaled with {spec.stack.name}",
        "leave `rope` out",
        (spec.model.label,),
    )


@rule("XP149", "scaling-that-no-row-needs", "note")
def not_needed(spec: Spec) -> Iterator[Finding]:
    """`rope` should be set only if `seq` is longer than the model's context before the scaling. With a shorter `seq`,
    every position is within that context, so the scaling is not needed.

    Why it is bad: every kind of scaling except `dynamic` changes all positions, also those of short rows, and the run
    teaches the model nothing about the longer context.

    Without this rule: nothing is reported.

    Source: transformers 5.23 `modeling_rope_utils.py` (`dynamic` scales only rows that are longer than the context).
    """
    rope, facts = spec.rope, spec.model.facts
    if own_scaling(spec) is not None:
        return  # the rule XP132 reports a model that is already scaled
    if rope is None or facts is None or "batch.seq" not in spec.method.reads:
        return
    # `facts.context` already includes the scaling
    seq, original = spec.integer("batch.seq"), rope.original or int(facts.context / rope.factor)
    own = _own_context(spec)
    if not 0 < seq <= original or (own is not None and own < original):
        return  # the rule XP170 reports a longer `original`
    yield Finding(
        spec.location("model.rope", f"`seq` is {seq}, and the context before the scaling is {original}"),
        "no row is longer than the model's context before the scaling",
        f"write `seq = {rope.context(original)}`, or leave `rope` out",
        (spec.label("batch.seq", "the longest sequence"),),
    )


@rule("XP170", "original-beyond-the-context", "warning")
def original_beyond_the_context(spec: Spec) -> Iterator[Finding]:
    """`original`, the length of the context before the scaling, must not be longer than the model's own context.
    `original` should be shorter only if the model was trained on a shorter context than its config.json states.

    Why it is bad: yarn and llama3 scale only those frequencies that turn too slowly for `original` tokens. If
    `original` is the scaled length instead of the original length, other frequencies are scaled, and the model's
    positions differ from those that it was trained on. A longer `original` also lets the run read rows for which the
    positions are not scaled enough.

    Without this rule: training runs; transformers only logs a warning if `original` does not fit the model's context.

    Source: transformers 5.23 `modeling_rope_utils.py` (`_compute_yarn_parameters`, `_compute_llama3_parameters`).
    """
    rope, own = spec.rope, _own_context(spec)
    if rope is None or rope.original is None or own is None or rope.original <= own or own_scaling(spec) is not None:
        return
    yield Finding(
        spec.location("model.rope", f"the model's context is {own}"),
        f"`original = {rope.original}` is longer than the context of {spec.model.name} before the scaling",
        f"leave `original` out, or write `original = {own}`; the scaled length is `factor` times as long",
        (spec.model.label,),
    )


def _own_context(spec: Spec) -> int | None:
    """The model's context in tokens, without `rope`. None if it is not known."""
    facts = spec.model.facts
    if facts is not None and spec.model.known_from == "registry":
        registered = registry.find_model(facts.alias)
        return None if registered is None else registered.context
    stated = spec.model.config.get("max_position_embeddings")
    return stated if isinstance(stated, int) else None
