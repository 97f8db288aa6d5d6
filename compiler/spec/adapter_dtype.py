"""The types that a trainer gives adapters and what is beside a quantized base."""

from __future__ import annotations

from xpc.compiler.spec import Spec


def adapter_dtype(spec: Spec) -> str | None:
    """The type of the adapters' weights: float32, but for what the stack does under bf16 and ZeRO-3.

    None where TRL before 1 decides it at the launch, by where the packed weights lie (4 bits that are sharded).

    TRL 1.16 trains adapters over a quantized base in bfloat16. It does so in every precision; the runtime lets it in
    bf16 alone. ZeRO-3 gathers weights of one type only, so there TRL 1.16 gives adapters that of an unquantized base.
    DoRA's magnitudes stay float32 in TRL 1.16, and FSDP2 shards trained weights of one type only: there the runtime
    leaves all of them float32.
    """
    methods, own = spec.stack.facts.quantized_adapters_bf16, spec.stack.facts.zero3_adapters_as_base
    if spec.bits is None:
        return spec.text("model.dtype") if own and spec.zero_stage == 3 else "fp32"
    if spec.weights_sharded and spec.bits == 4 and spec.get("method") in spec.stack.facts.adapters_as_storage:
        return None
    narrow = "bf16" in (spec.text("precision"), spec.text("model.dtype"))  # else the run gives them back their width
    narrow = narrow and not (spec.flag("lora.dora") and spec.sharded_by_fsdp)
    return "bf16" if narrow and spec.get("method") in methods else "fp32"


def tables_dtype(spec: Spec) -> str:
    """The type of embeddings, head and norms beside a quantized base.

    TRL before 1 makes them float32 (peft's prepare_model_for_kbit_training), and of 4 bits in bf16 all but the norms
    bf16 again (peft_module_casting_to_bf16). It leaves 4 bits that are sharded; DeepSpeed casts what it did.
    """
    stays = spec.bits == 4 and (spec.weights_sharded or spec.text("precision") == "bf16")
    if spec.zero_stage:
        return spec.text("precision")
    if spec.get("method") in spec.stack.facts.quantized_widened and not stays:
        return "fp32"
    return spec.text("model.dtype")
