"""Rules about `extra trl` and `extra accelerate`: the dtype of evaluations, label smoothing, and backends for half
precision (XP35x).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.conditions import extra
from xpc.compiler.rules.core.rule import Finding, rule
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Label

WHEN = extra("trl", "accelerate")

FULL_EVAL = ("bf16_full_eval", "fp16_full_eval")


@rule("XP350", "half-precision-evaluation", "warning")
def half_evaluation(spec: Spec) -> Iterator[Finding]:
    """`bf16_full_eval` and `fp16_full_eval` cast the weights only for an evaluation outside of training, but a bundle
    evaluates during training, where they have no effect. Under ZeRO, DeepSpeed also reads these two arguments as the
    precision of training.

    Why it is bad: `bf16_full_eval` and `fp16_full_eval` have no effect, or make the run fail.

    Without this rule: evaluations stay in the run's precision. If both arguments are set, or if `bf16_full_eval` is set
    on a GPU older than Ampere, building the arguments raises ValueError. Under ZeRO, a dtype other than that of
    `precision` raises ValueError when training begins.

    Source: transformers 5.23 and 4.52.3 `training_args.py`, `trainer.py` `evaluation_loop`,
    `integrations/deepspeed.py`; confirmed by running it.
    """
    dtypes = [name for name in FULL_EVAL if spec.extra_value("trl", name) is True]
    precision, gpu = spec.text("precision"), spec.hardware.gpu
    for name in dtypes:
        location, severity, dtype = spec.extra_location("trl", name), "error", name[:4]
        related: tuple[Label | None, ...] = (spec.label("precision", "the precision"),)
        if len(dtypes) == 2:
            if name == dtypes[0]:
                continue
            message = "an evaluation cannot be both in bf16 and in fp16"
            related = (spec.extra_location("trl", dtypes[0], "the other dtype"),)
        elif spec.zero_stage and precision != dtype:
            message = f"DeepSpeed reads `{name}` as {dtype} training, but the run trains in {precision}"
            related = (*related, spec.label("strategy", "the strategy"))
        elif dtype == "bf16" and gpu is not None and gpu.capability < (8, 0):
            message = f"{gpu.name} is older than Ampere, so it cannot evaluate in bf16"
            related = (spec.label("hardware", "the GPU"),)
        else:
            message, severity = f"`{name}` has no effect on evaluations during training", "warning"
        yield Finding(location, message, f"leave `{name}` out", related, severity=severity)


@rule("XP351", "label-smoothing-of-another-method")
def smoothing_of_another_method(spec: Spec) -> Iterator[Finding]:
    """`label_smoothing_factor` needs sft: the other trainers compute their own loss and never read it.

    Why it is bad: the labels are not smoothed.

    Without this rule: `label_smoothing_factor` is accepted and changes nothing.

    Source: trl 1.16 and 0.18 `dpo_trainer.py`, `kto_trainer.py`, `reward_trainer.py`, `grpo_trainer.py`
    (`compute_loss`); read, not run.
    """
    method, value = spec.text("method"), spec.extra_value("trl", "label_smoothing_factor")
    if value and method != "sft":
        other = "write `label_smoothing` in `method dpo`, or " if method == "dpo" else ""
        yield Finding(
            spec.extra_location("trl", "label_smoothing_factor", "never read"),
            f"`label_smoothing_factor` has no effect in {method}",
            f"{other}leave `label_smoothing_factor` out",
            (spec.label("method", "the method"),),
        )


@rule("XP352", "smoothed-loss-not-divided")
def smoothed_loss_not_divided(spec: Spec) -> Iterator[Finding]:
    """On transformers 4.52, label smoothing cannot be combined with accumulation, because the smoothed loss is not
    divided by the number of accumulated micro-batches. With `mean = global_tokens`, it is also not divided by the
    number of processes. transformers 5.23 divides correctly.

    Why it is bad: the gradients are too large: by a factor of the accumulation, and perhaps also of the number of
    processes.

    Without this rule: the gradients are silently too large; with an accumulation of four, their norm was 6.1 instead of
    1.5.

    Source: transformers 4.52.3 `trainer.py` `compute_loss`, `training_step`; confirmed by running it.
    """
    value = spec.extra_value("trl", "label_smoothing_factor")
    if not value or spec.text("method") != "sft" or spec.stack.facts.label_smoothing != "not_divided":
        return
    accum, world = spec.integer("batch.accum"), spec.hardware.world
    factor = accum * (world if spec.get("batch.mean") == "global_tokens" else 1)
    if factor > 1:
        product = f"an accumulation of {accum}" + (f" on {factor // accum} processes" if factor > accum else "")
        yield Finding(
            spec.extra_location("trl", "label_smoothing_factor", f"not divided by {product}"),
            f"gradients of the smoothed loss are {factor} times too large",
            "leave `label_smoothing_factor` out",
            (spec.label("batch.accum", "the accumulation"), spec.label("batch.gbs"), spec.label("batch.mean")),
        )


@rule("XP356", "backend-not-in-the-bundle")
def backend_not_installed(spec: Spec) -> Iterator[Finding]:
    """`half_precision_backend = apex` and `use_ipex` cannot be used, because bundles install neither apex nor Intel's
    extension. On a GPU, `half_precision_backend` should not be `cpu_amp`, which has no effect there. transformers 5 has
    neither argument.

    Why it is bad: without apex and Intel's extension, the run cannot start, or `half_precision_backend` and `use_ipex`
    have no effect.

    Without this rule: with apex, a bf16 run ends with ValueError when the arguments are built, because apex cannot
    compute in bf16. An fp16 run ends with ImportError after the model is loaded, and on transformers 4.57 so does an
    fp32 run. `cpu_amp` on a GPU changes nothing.

    Source: transformers 4.52.3 and 4.57.6 `trainer.py` (`autocast_smart_context_manager`), `training_args.py`;
    confirmed by running it.
    """
    backend = spec.extra_value("trl", "half_precision_backend")
    # fp16 under DeepSpeed is not checked, because DeepSpeed implements fp16 without apex
    precision, own = spec.text("precision"), spec.zero_stage > 0
    half = precision == "bf16" or (precision == "fp16" and not own)
    apex = backend == "apex" and (half or spec.stack.facts.apex_always_imported)
    if apex or (half and backend == "cpu_amp" and not spec.on_cpu and not own):
        location = spec.extra_location("trl", "half_precision_backend")
        yield Finding(
            location,
            "apex is not in the bundle" if apex else "`cpu_amp` has no effect on a GPU",
            'write `half_precision_backend = "auto"`',
            (spec.label("precision", "the precision"), spec.label("hardware", "the hardware")),
            location.typed.replace(str(backend), "auto"),
            severity="error" if apex else "warning",
        )
    if spec.extra_value("trl", "use_ipex") is True:
        yield Finding(
            spec.extra_location("trl", "use_ipex"),
            "Intel's extension for PyTorch is not in the bundle",
            "leave `use_ipex` out",
            (spec.label("target", "the target"),),
        )


@rule("XP358", "tpu-precision", "warning")
def tpu_precision(spec: Spec) -> Iterator[Finding]:
    """`downcast_bf16` needs a TPU, because only accelerate's launcher for TPUs reads it.

    Why it is bad: `downcast_bf16` has no effect on GPUs and CPUs.

    Without this rule: nothing is reported; `downcast_bf16` is read only on TPUs (XLA).

    Source: accelerate 1.15 and 1.4 `utils/launch.py`, `state.py`; read, not run.
    """
    if spec.extra_value("accelerate", "downcast_bf16") is True:
        where = "the CPU" if spec.hardware.gpu is None else spec.hardware.gpu.name
        yield Finding(
            spec.extra_location("accelerate", "downcast_bf16", "read for TPUs"),
            f"`downcast_bf16` has no effect on {where}",
            "leave `downcast_bf16` out",
            (spec.label("hardware", "the hardware"),),
        )


@rule("XP325", "narrowed-by-generation")
def narrowed_by_generation(spec: Spec) -> Iterator[Finding]:
    """Continuous batching needs `precision fp32`, because trl casts the trained model to the run's precision before it
    generates, and never casts it back.

    Why it is bad: training goes on with half-precision weights, although the bundle states fp32 weights.

    Without this rule: after the first generation, a bf16 run trains bf16 weights without a float32 copy, and an fp16
    run ends with "Attempting to unscale FP16 gradients". Two kinds of runs lose only precision in their rotary
    frequencies: those whose weights are loaded in 16 bits anyway, and those under ZeRO, which keeps a float32 copy.

    Source: trl 1.16 `grpo_trainer.py`, `rloo_trainer.py` (`use_transformers_continuous_batching`), trl 0.24 likewise
    (`use_transformers_paged`); confirmed by running it.
    """
    name, precision = spec.stack.facts.continuous_batching, spec.text("precision")
    if not _batches_continuously(spec) or precision == "fp32":
        return
    yield Finding(
        spec.extra_location("trl", name, f"casts the weights to {precision}"),
        f"continuous batching casts the trained weights to {precision}",
        f"leave `{name}` out, or write `precision fp32`",
        (spec.label("precision", "the precision"), spec.label("model.dtype", "the dtype of the weights")),
    )


@rule("XP575", "continuous-batching-out-of-reach")
def batching_out_of_reach(spec: Spec) -> Iterator[Finding]:
    """On trl 0.24, continuous batching works only in a single process on a GPU, without DeepSpeed. On trl 1.16
    continuous batching works everywhere.

    Why it is bad: the run fails in its first round of generation.

    Without this rule: AttributeError, because trl reads the configuration from DDP's or DeepSpeed's wrapper instead of
    the model ("'DistributedDataParallel' object has no attribute 'config'", "'dict' object has no attribute
    '_attn_implementation'"). On a CPU, transformers cannot allocate the cache for continuous batching, so no completion
    is generated, and trl raises RuntimeError.

    Source: trl 0.24 `grpo_trainer.py:1240`, `rloo_trainer.py:1227`, transformers 4.57 `continuous_batching/cache.py`;
    confirmed by running it.
    """
    facts = spec.stack.facts
    wrapped = spec.zero_stage or (spec.text("strategy") == "ddp" and spec.hardware.world > 1)
    if (wrapped or spec.on_cpu) and _batches_continuously(spec) and not facts.continuous_batching_anywhere:
        yield Finding(
            spec.extra_location("trl", facts.continuous_batching, "needs one process on a GPU"),
            "continuous batching cannot use a model that DDP or DeepSpeed wraps"
            if wrapped
            else "continuous batching cannot generate on a CPU",
            f"leave `{facts.continuous_batching}` out",
            (spec.label("strategy", "what wraps the model") if wrapped else spec.label("hardware", "a CPU"),),
        )


def _batches_continuously(spec: Spec) -> bool:
    name = spec.stack.facts.continuous_batching
    return bool(name) and spec.extra_value("trl", name) is True and not spec.flag("method.vllm")
