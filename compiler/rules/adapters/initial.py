"""Rules about `lora(init = ...)`, the initial weights of adapters (XP142 to XP147)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import IntegerPath
from xpc.compiler.registry.linear_layers import TABLES
from xpc.compiler.rules.core.conditions import written
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.rules.optimizer.requirements import CONVOLUTIONS
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able
from xpc.compiler.stacks.fused_experts import adapted, adapter_layers

WHEN = written("lora.init", "lora.init_iterations", "lora.init_rows")


@rule("XP142", "init-without-its-setting")
def of_another(spec: Spec) -> Iterator[Finding]:
    """`init_iterations` needs `init = pissa`, and `init_rows` needs `init = eva`. An adapter with `from` cannot have
    `init`, because it starts with the weights of a saved adapter.

    Why it is bad: `init`, `init_iterations` or `init_rows` has no effect.

    Without this rule: peft silently ignores `init_iterations` unless `init = pissa`, and `init_rows` unless `init =
    eva`. If `from` and `init` are combined, peft first initializes an adapter as `init` states, and then replaces its
    weights by the saved weights. PiSSA also changes the weights of the base, so the saved adapter no longer fits the
    base.

    Source: peft 0.21 and 0.17 `tuners/lora/layer.py`; confirmed by running it.
    """
    init = spec.get("lora.init")
    owners: tuple[tuple[IntegerPath, str], ...] = (("lora.init_iterations", "pissa"), ("lora.init_rows", "eva"))
    for path, owner in owners:
        if spec.written(path) and init != owner:
            name = path.rpartition(".")[2]
            yield Finding(
                spec.location(path, f"`init = {owner}` reads it"),
                f"`{name}` does nothing without `init = {owner}`",
                f"leave `{name}` out",
                (spec.label("lora.init"),),
            )
    if init is not None and spec.get("lora.from") is not None:
        yield Finding(
            spec.location("lora.init", "initial weights"),
            "`init` has no effect: this adapter continues a saved one and starts with the saved weights",
            "leave `init` out",
            (spec.label("lora.from", "the adapter"),),
        )


@rule("XP143", "init-that-changes-the-reference", reads=("method.beta", "method.reference_free"))
def changes_the_reference(spec: Spec) -> Iterator[Finding]:
    """Before trl 1, a method that compares with a reference model, such as dpo, cannot start from PiSSA, OLoRA or
    LoftQ. With adapters, the reference is the base model: the trained model with its adapters switched off. PiSSA and
    OLoRA change the base: they subtract the initial adapter from its weights. LoftQ's initial adapter corrects the
    rounding of the base. So the reference would lack what the initial adapter contains. With trl 1.16, the bundle gives
    the reference a frozen copy of the initial adapter, and the reference is the model with which training starts.

    Why it is bad: PiSSA, OLoRA and LoftQ start from a base that is a damaged model without its initial adapter.

    Without this rule: the run silently compares with the damaged base: the loss of dpo's first step is not ln 2, as it
    should be for two equal models.

    Source: trl 0.24 and 0.18 `dpo_trainer.py` (`disable_adapter`), trl 1.16 `dpo_trainer.py` (`use_adapter`), peft 0.21
    `tuners/lora/layer.py` (`pissa_init`, `olora_init`); confirmed by running it.
    """
    init, method = spec.get("lora.init"), spec.text("method")
    if not spec.starts_apart or not spec.compares or method in spec.stack.facts.adapter_references:
        return
    other = able(lambda one: method in one.facts.adapter_references)
    online = ", or write `beta = 0`, which needs no reference" if spec.online else ""
    yield Finding(
        spec.location("lora.init", "changes the base" if spec.changes_base else "corrects the base"),
        f"{method} compares with the base model, and {init} "
        + ("changes the weights of the base model" if spec.changes_base else "starts from a corrected one"),
        (f"write `target {other}`, or leave `init` out" if other else "leave `init` out") + online,
        (spec.label("method", "the method"), spec.label("target", "the target")),
    )


@rule("XP144", "init-of-divided-weights")
def divided(spec: Spec) -> Iterator[Finding]:
    """PiSSA and OLoRA decompose the weights of the base before the first step, so these weights must be neither
    quantized nor sharded by FSDP. ZeRO-3 may shard them, because it can gather them one by one. EVA runs the model on
    rows of the data before the first step. So EVA needs weights that are not sharded at all, and rows that are not
    split by `context_parallel`. EVA's base may be quantized. LoftQ decomposes the rounding error of a base in 4 bits.
    So LoftQ needs a base of 4 bits (`qlora`) that is not sharded.

    Why it is bad: if the base is sharded, no process has its complete weights. If the base is quantized, its weights
    are 4-bit or 8-bit codes, which cannot be decomposed. For LoftQ, a base that is not quantized has no rounding error
    to decompose.

    Without this rule: RuntimeError for EVA under ZeRO-3 ("must be 2-D"), and TypeError for PiSSA over a quantized base.
    OLoRA subtracts its initial adapter and quantizes the base again, so the saved adapter does not fit the published
    base. Under FSDP, all processes but the first decompose weights that are not loaded yet. For LoftQ over a base that
    is not quantized, AttributeError.

    Source: peft 0.21, 0.18 and 0.17 `tuners/lora/layer.py`, `tuners/lora/eva.py`; confirmed by running it.
    """
    init = spec.get("lora.init")
    if init in (None, "gaussian"):
        return
    if spec.sharded_by_fsdp or (init in ("eva", "loftq") and spec.zero_stage == 3):
        yield Finding(
            spec.location("lora.init", "needs complete weights"),
            f"{spec.text('strategy')} shards the weights that {init} reads",
            "leave `init` out, or write `strategy zero2`",
            (spec.label("strategy", "the strategy"),),
        )
    elif init == "eva" and spec.context_parallel > 1:
        yield Finding(
            spec.location("lora.init", "reads complete rows"),
            f"{spec.context_parallel} processes share each row that eva reads",
            "leave `init` out, or `context_parallel`",
            (spec.label("strategy.context_parallel"),),
        )
    if init == "loftq" and spec.bits != 4:
        yield Finding(
            spec.location("lora.init", "corrects the rounding to 4 bits"),
            f"loftq corrects a base of 4 bits, and this base {'has 8 bits' if spec.bits else 'is not quantized'}",
            "write `bits = 4`, or leave `init` out"
            if spec.bits
            else "leave `init` out: only the base of qlora is rounded",
            (spec.label("lora.bits") or spec.label(spec.adapter, "the base"),),
        )
    if spec.bits and spec.changes_base:
        yield Finding(
            spec.location("lora.init", "decomposes the weights"),
            f"{init} cannot decompose a base of {spec.bits} bits",
            write("init = eva", ", or leave `init` out"),
            (spec.label("lora.bits") or spec.label(spec.adapter, "the quantized base"),),
        )


@rule("XP145", "init-of-other-layers", reads=("lora.targets",))
def other_layers(spec: Spec) -> Iterator[Finding]:
    """An adapter that starts from PiSSA, OLoRA, LoftQ or EVA (`init`) must be on linear layers inside the decoder.
    These methods cannot initialize adapters on embeddings, on the output head (which may share its weight with the
    embeddings), or on experts that are one stacked parameter. OLoRA and LoftQ also cannot initialize adapters on
    GPT-2's Conv1D layers, and EVA cannot on the MLP of OPT, which reads all tokens of a batch as one list.

    Why it is bad: adapters on embeddings, the output head or stacked experts would not start with the weights that
    `init` states.

    Without this rule: peft silently gives adapters on embeddings their usual initial values. If the head is tied to the
    embeddings, peft also subtracts the head's initial adapter from the embeddings. For stacked experts, peft raises
    AttributeError. OLoRA on Conv1D ends with RuntimeError in the first step.
    LoftQ would compare weights of different shapes. For OPT, EVA ends with ValueError before the first step.

    Source: peft 0.21 `tuners/lora/layer.py` (`Embedding`, `ParamWrapper`, `olora_init`), `tuners/lora/eva.py`,
    transformers 5.23 `modeling_opt.py` (`hidden_states.reshape(-1, ...)`); confirmed by running it, for every family.
    """
    init = spec.get("lora.init")
    if init in (None, "gaussian"):
        return
    family, targets = spec.model.model_type, spec.get("lora.targets")
    outside = [one for one in spec.names("lora.targets") if one.rpartition(".")[2] in TABLES]
    stack = [*spec.names("lora.parameters"), *adapted(spec.stack, family, targets)]
    if outside:
        kept = [one for one in spec.names("lora.targets") if one not in outside]
        yield Finding(
            spec.location("lora.targets", f"`{outside[0][:60]}` is outside of the decoder's layers"),
            f"{init} cannot initialize an adapter on `{outside[0][:60]}`",
            write(f"targets = [{', '.join(kept)}]" if kept else "targets = all-linear"),
            (spec.label("lora.init", "the initialization"),),
        )
    elif stack:
        yield Finding(
            spec.location("lora.init", f"`{stack[0][:60]}` is a stack of experts"),
            f"{init} cannot initialize adapters on the experts of {family}",
            "name layers of the attention in `targets`: `targets = [q_proj, v_proj]`, or leave `init` out",
            (spec.label("lora.parameters") or spec.label("lora.targets", "the modules"), spec.model.label),
        )
    elif init == "eva" and family == "opt" and (flat := _flattened(spec)):
        yield Finding(
            spec.location("lora.init", f"the input of `{flat[0]}` has two dimensions in {family}"),
            f"eva cannot initialize an adapter on `{flat[0]}` of {family}",
            write("targets = [q_proj, k_proj, v_proj, out_proj]", ", or leave `init` out"),
            (spec.label("lora.targets", "the modules"), spec.model.label),
        )
    elif init in ("olora", "loftq") and family in CONVOLUTIONS:
        yield Finding(
            spec.location("lora.init", f"the layers of {family} are Conv1D"),
            f"{init} cannot decompose the layers of {family}",
            write("init = pissa" if init == "olora" else "init = eva", ", or leave `init` out"),
            (spec.model.label,),
        )


def _flattened(spec: Spec) -> list[str]:
    """The layers with adapters in the MLP of OPT."""
    facts = spec.model.facts
    layers = () if facts is None else adapter_layers(spec.stack, facts, spec.get("lora.targets"))[0]
    return [one.name for one in layers if one.name in ("fc1", "fc2")]


@rule("XP146", "init-of-a-high-rank", reads=("lora.rank", "lora.targets"))
def high_rank(spec: Spec) -> Iterator[Finding]:
    """An adapter that starts from PiSSA, OLoRA, LoftQ or EVA (`init`) must not have a higher `rank` than the layer's
    input size. For all but EVA, `rank` must not exceed the output size either.

    Why it is bad: an adapter needs `rank` components of its layer to start from. These are components of the weight
    (PiSSA, OLoRA), of the weight's quantization error (LoftQ), or of the layer's inputs (EVA). A layer has at most as
    many components as inputs or outputs.

    Without this rule: with PiSSA or OLoRA, peft silently makes a smaller adapter than adapter_config.json states, and
    the saved adapter cannot be loaded. EVA never ends: it waits until `rank` principal components have converged, but a
    layer has only as many components as inputs.

    Source: peft 0.21 `tuners/lora/layer.py`, `tuners/lora/eva.py`; confirmed by running it.
    """
    init, facts = spec.get("lora.init"), spec.model.facts
    if init in (None, "gaussian") or facts is None or not spec.low_rank:
        return
    layers, _ = adapter_layers(spec.stack, facts, spec.get("lora.targets"))
    sizes = {one.name: one.inputs if init == "eva" else min(one.inputs, one.outputs) for one in layers}
    if not sizes:
        return
    narrow = min(sizes, key=lambda name: sizes[name])
    if spec.integer("lora.rank") > sizes[narrow]:
        yield Finding(
            spec.location("lora.rank", f"`{narrow}` has {sizes[narrow]:,} directions"),
            f"{init} can initialize `{narrow}` only up to rank {sizes[narrow]:,}",
            write(f"rank = {sizes[narrow]}"),
            (spec.label("lora.init", "the initialization"), spec.model.label),
        )


@rule("XP147", "init-from-other-rows")
def from_other_rows(spec: Spec) -> Iterator[Finding]:
    """EVA needs the method sft, because EVA computes the initial adapter from the tokens that are trained on. Rows of
    other methods are pairs of answers, rated answers, or prompts without an answer.

    Why it is bad: for rows of methods other than sft, nothing defines from which tokens EVA should compute the adapter.

    Without this rule: KeyError before the first step, because the batches of methods other than sft have no `input_ids`
    or no `labels`.

    Source: peft 0.21 and 0.17 `tuners/lora/eva.py` (`prepare_model_inputs_fn_language_modeling`), trl 1.16
    `dpo_trainer.py`; confirmed by running it.
    """
    if spec.get("lora.init") == "eva" and spec.text("method") != "sft":
        yield Finding(
            spec.location("lora.init", "reads rows of `method sft`"),
            f"eva cannot compute initial weights from the rows of {spec.text('method')}",
            "leave `init` out",
            (spec.label("method", "the method"),),
        )
