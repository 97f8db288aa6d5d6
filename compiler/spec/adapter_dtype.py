"""Find the dtypes that a trainer gives to adapters, and to the weights of a quantized base that are not quantized."""

from __future__ import annotations

from xpc.compiler.spec import Spec


def adapter_dtype(spec: Spec) -> str | None:
    """The dtype of the adapters' weights. It is float32, unless the stack changes it: in bf16 runs, or under ZeRO.

    None for adapters over sharded 4-bit weights with TRL before 1, because TRL chooses this dtype only at the launch,
    by the device of the weights.

    TRL 1.16 trains adapters over a quantized base in bfloat16, whatever the precision is; the bundle's runtime allows
    this only in bf16. ZeRO-3 can gather only weights of one dtype, so under ZeRO-3 TRL 1.16 gives adapters the dtype of
    an unquantized base. DeepSpeed (zero.Init) loads this base in the dtype of the run's precision, and ignores
    `model.dtype`. For DoRA, TRL 1.16 leaves the magnitudes in float32. FSDP2 needs one dtype for all trained weights,
    and ZeRO-1 and ZeRO-2 in fp32 concatenate them, which makes all of them float32 (DeepSpeed 0.19.8,
    stage_1_and_2.py). So there, the runtime leaves all weights of DoRA adapters in float32.

    If TRL 1.16 computes the reference of dpo or kto before training (`precompute`) with DeepSpeed, it puts the model
    into an engine of the run's precision, which casts all weights of the model.
    """
    methods, own = spec.stack.facts.quantized_adapters_bf16, spec.stack.facts.zero3_adapters_as_base
    precision = spec.text("precision")
    cast = spec.stack.facts.precompute_in_engine and spec.zero_stage and spec.flag("method.precompute")
    if (cast and precision in ("bf16", "fp16")) or (own and spec.zero_stage == 3 and spec.bits is None):
        return precision
    if spec.bits is None:
        return "fp32"
    if spec.weights_sharded and spec.bits == 4 and spec.get("method") in spec.stack.facts.adapters_as_storage:
        return None
    # if neither the precision nor the model's dtype is bf16, the runtime makes adapters float32
    narrow = "bf16" in (precision, spec.text("model.dtype"))
    one_dtype = spec.sharded_by_fsdp or (spec.zero_stage and precision == "fp32")
    narrow = narrow and not (spec.flag("lora.dora") and one_dtype)
    return "bf16" if narrow and spec.get("method") in methods else "fp32"


def norms_widened(spec: Spec) -> bool:
    """Whether the norms of a quantized base become float32 in a half-precision run, while its embeddings and its head
    stay bf16.

    This happens with TRL before 1 and a 4-bit base in bf16: peft_module_casting_to_bf16 makes every norm float32. Many
    families then compute the residual stream in float32. It does not happen for sharded 4-bit weights, which TRL does
    not cast, or with DeepSpeed, which casts the model afterwards.
    """
    widened = spec.get("method") in spec.stack.facts.quantized_widened and not spec.weights_sharded
    return bool(widened and spec.bits == 4 and spec.text("precision") == "bf16" and not spec.zero_stage)


def tables_dtype(spec: Spec) -> str:
    """The dtype of the embeddings and the head of a quantized base.

    TRL before 1 first makes them float32 (peft's prepare_model_for_kbit_training). For 4 bits in bf16, it then makes
    all weights except the norms bf16 again (peft_module_casting_to_bf16). TRL casts nothing for sharded 4-bit weights.
    With DeepSpeed, these casts have no effect, because DeepSpeed casts the model afterwards.
    """
    stays = spec.bits == 4 and (spec.weights_sharded or spec.text("precision") == "bf16")
    if spec.zero_stage:
        return spec.text("precision")
    if spec.get("method") in spec.stack.facts.quantized_widened and not stays:
        return "fp32"
    return spec.text("model.dtype")
