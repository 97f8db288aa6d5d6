"""Rules about adapters of peft other than LoRA and OFT: `vera`, `loha` and `miss` (XP230 to XP233)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.methods.definition import generates_itself
from xpc.compiler.rules.core.conditions import enabled, older_transformers
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.spec.adapter_dtype import adapter_dtype
from xpc.compiler.stacks.fused_experts import adapter_layers

WHEN = enabled("vera", "loha", "miss")


@rule("XP230", "loha-of-sharded-weights")
def sharded(spec: Spec) -> Iterator[Finding]:
    """`loha` cannot be combined with ZeRO-3. peft reads the shape of LoHa's matrices from the layer's weight, which
    ZeRO-3 has already sharded. `vera` and `miss` read the sizes from the layer's attributes, which ZeRO-3 does not
    change.

    Why it is bad: the run cannot start.

    Without this rule: IndexError "tuple index out of range" in the trainer's constructor, after the data is tokenized.

    Source: peft 0.21, 0.18 and 0.17 `tuners/loha/layer.py` (`update_layer`); confirmed by running it.
    """
    if spec.flag("loha") and spec.zero_stage == 3:
        yield Finding(
            spec.location("loha", "takes its shape from the weight"),
            "loha cannot adapt weights that zero3 has sharded",
            "write `strategy zero2`, or `lora` instead of `loha`",
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP231", "loha-of-packed-weights")
def packed(spec: Spec) -> Iterator[Finding]:
    """`loha` cannot adapt a 4-bit base. LoHa's matrices have the shape of the layer's weight, but a 4-bit weight is
    packed into one column. `loha` can adapt an 8-bit base, because 8-bit weights keep their shape.

    Why it is bad: the run cannot train.

    Without this rule: RuntimeError in the first step ("mat1 and mat2 shapes cannot be multiplied").

    Source: peft 0.21, 0.18 and 0.17 `tuners/loha/layer.py`; bitsandbytes 0.50 `nn/modules.py` (`Linear4bit`); confirmed
    by running it.
    """
    if spec.flag("loha") and spec.bits == 4:
        yield Finding(
            spec.location("lora.bits", "packed into one column"),
            "loha cannot adapt a base of 4 bits",
            write("bits = 8", ", or `vera` or `miss` instead of `loha`"),
            (spec.label("loha", "the adapter"),),
        )


@rule("XP232", "block-wider-than-the-layer", reads=("lora.rank", "lora.targets"))
def wide_block(spec: Spec) -> Iterator[Finding]:
    """The `rank` of `miss` must not exceed a layer's input size, because MiSS splits the inputs into blocks of size
    `rank`.

    Why it is bad: a layer with fewer inputs than `rank` has less than one block.

    Without this rule: ValueError in the trainer's constructor, after the data is tokenized. peft 0.17 and 0.18 pad the
    inputs and train; their adapter cannot be merged (RuntimeError).

    Source: peft 0.21, 0.18 and 0.17 `tuners/miss/layer.py`; confirmed by running it.
    """
    facts = spec.model.facts
    if not spec.flag("miss") or facts is None:
        return
    layers, _ = adapter_layers(spec.stack, facts, spec.get("lora.targets"))
    narrow = min(layers, key=lambda one: one.inputs, default=None)
    if narrow is not None and spec.integer("lora.rank") > narrow.inputs:
        yield Finding(
            spec.location("lora.rank", f"`{narrow.name}` has {narrow.inputs:,} inputs"),
            f"a block of {spec.integer('lora.rank'):,} inputs is wider than `{narrow.name}`",
            write(f"rank = {min(64, narrow.inputs)}"),
            (spec.label("miss", "the adapter"), spec.model.label),
        )


@rule("XP233", "vera-in-two-dtypes")
def two_dtypes(spec: Spec) -> Iterator[Finding]:
    """`vera` cannot be used if its float32 matrices would be multiplied with 16-bit tensors without autocast. All
    layers with VeRA adapters share two such matrices. There are four cases. The first is a quantized base with
    `precision fp32`, if the stack trains adapters in bfloat16. The second is ZeRO in bf16 or fp16, because DeepSpeed
    0.19 has no autocast. ZeRO-3 over a base that is not quantized is legal, because ZeRO-3 creates the shared matrices
    in 16 bits. The third is FSDP2 in bf16 or fp16: accelerate uses no autocast, and FSDP2 casts weights, but not the
    shared matrices. FSDP1 is legal, because it casts the shared matrices, too. The fourth is a quantized base in bf16
    or fp16 whose trainer generates completions with the model (distill, grpo, rloo), because it generates without
    autocast.

    Why it is bad: the run cannot train.

    Without this rule: RuntimeError in the first step ("expected m1 and m2 to have the same dtype").

    Source: peft 0.21 `tuners/vera/layer.py`, trl 1.16 `sft_trainer.py`, deepspeed 0.19.8 `engine.py`
    (`_configure_distributed_model`), accelerate 1.15 and 1.11 `accelerator.py` (`_prepare_fsdp2`); confirmed by running
    it with ddp, zero1, zero2, zero3, fsdp and fsdp1.
    """
    if not spec.flag("vera"):
        return
    if spec.bits and spec.text("precision") == "fp32" and adapter_dtype(spec) == "bf16":
        yield Finding(
            spec.location("model.dtype", "the adapters' dtype, too"),
            f"vera cannot train in fp32 if the base has {spec.bits} bits and the dtype {spec.text('model.dtype')}",
            write("dtype = fp32", ", or `precision bf16`"),
            (spec.label("precision", "no autocast"),),
        )
    elif spec.bits and generates_itself(spec.method, spec.get) and _narrow_when_generating(spec):
        yield Finding(
            spec.location("lora.bits", f"{spec.bits}-bit layers return {spec.text('precision')}"),
            f"vera cannot generate over a base in {spec.bits} bits in {spec.text('precision')}",
            "leave `bits` out, or use `lora`",
            (spec.label("vera", "shares matrices in float32"), spec.label("method", "generates without autocast")),
        )
    # ZeRO-3 loads a model under zero.Init, and zero.Init creates VeRA's buffers in 16 bits, too
    initialized = spec.zero_stage == 3 and not spec.bits
    if spec.zero_stage and spec.stack.facts.zero_keeps_buffers and spec.text("precision") != "fp32" and not initialized:
        yield Finding(
            spec.location("strategy", "casts no buffers"),
            f"vera cannot train in {spec.text('precision')} under {spec.text('strategy')} on {spec.stack.name}",
            "write `strategy ddp`" + ("" if spec.bits else ", or `strategy zero3`"),
            (spec.label("vera", "shares matrices in float32"), spec.label("precision", "no autocast")),
        )
    elif spec.text("strategy") in ("fsdp", "hsdp") and spec.stack.facts.fsdp2 and spec.text("precision") != "fp32":
        yield Finding(
            spec.location("strategy", "casts the weights, but not vera's matrices"),
            f"vera cannot train in {spec.text('precision')} under {spec.text('strategy')} on {spec.stack.name}",
            "write `strategy ddp`" + ("" if spec.bits else ", or `strategy zero3`"),
            (spec.label("vera", "shares matrices in float32"), spec.label("precision", "no autocast")),
        )


def _narrow_when_generating(spec: Spec) -> bool:
    """Whether layers of a quantized base get 16-bit tensors while the model generates. With transformers 4, layers of 8
    bits return float32. Source: executed on trl-1.16 and trl-0.24.
    """
    return spec.text("precision") != "fp32" and (spec.bits == 4 or not older_transformers(spec))
