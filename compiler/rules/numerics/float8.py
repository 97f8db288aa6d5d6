"""Rules about `precision fp8`: torchao multiplies the inputs and weights of linear layers in fp8 (XP360 to XP367)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.registry.linear_layers import linear_layers
from xpc.compiler.rules.core.conditions import chosen
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import able

WHEN = chosen("precision", "fp8")

WITH_FP8 = (8, 9)
"""The lowest compute capability of GPUs that can multiply matrices in fp8."""
STRATEGIES = ("ddp", "fsdp")
LOADS_ONCE = "fsdp_cpu_ram_efficient_loading"
MULTIPLE = 16
"""torchao needs matrices whose number of rows and number of columns are both divisible by this."""
NOT_LINEAR = ("gpt2", "openai-gpt")
"""Families whose linear layers are of transformers' class Conv1D. torchao does not convert these layers to fp8."""


def _bf16(spec: Spec, fact: str, message: str, *more: str) -> Finding:
    """Make a finding about `precision fp8`. `fact` is printed below the setting in the snippet of the spec. The finding
    suggests bf16, followed by the texts in `more`.
    """
    location = spec.location("precision", fact)
    typed = location.typed.replace("fp8", "bf16")
    return Finding(location, message, "write `precision bf16`" + "".join(more), (), typed)


@rule("XP360", "fp8-on-the-hardware")
def fp8_hardware(spec: Spec) -> Iterator[Finding]:
    """`precision fp8` needs a GPU of compute capability 8.9 or later, such as an L4, an L40S or an H100.

    Why it is bad: older GPUs cannot multiply fp8 numbers, and a CPU multiplies them too slowly for training.

    Without this rule: on an older GPU accelerate warns and trains in fp16 mixed precision; on a CPU the run is slower
    than in fp32.

    Source: accelerate 1.15 `state.py` (`check_cuda_fp8_capability`). Confirmed by running it on a CPU; the behaviour on
    GPUs is known from the source only.
    """
    gpu = spec.hardware.gpu
    if gpu is not None and gpu.capability >= WITH_FP8:
        return
    what = "the CPU" if gpu is None else gpu.name
    fact = "needs a GPU" if gpu is None else f"{gpu.name} has capability {gpu.compute_capability}; fp8 needs 8.9"
    other = "bf16" if gpu is not None and gpu.bf16_tflops is not None else "fp32"
    location = spec.location("precision", fact)
    yield Finding(
        location,
        f"fp8 cannot be used on {what}",
        f"write `precision {other}`",
        (spec.label("hardware", "the hardware"),),
        location.typed.replace("fp8", other),
    )


@rule("XP361", "fp8-on-the-target")
def fp8_target(spec: Spec) -> Iterator[Finding]:
    """`precision fp8` needs trl-1.16.

    Why it is bad: torchao multiplies in fp8 only matrices whose sizes are multiples of 16. The versions of accelerate
    in trl-0.18 and trl-0.24 have no option to pad these matrices.

    Without this rule: on a GPU, RuntimeError in the first step whose number of tokens is not a multiple of 16.

    Source: accelerate 1.15, 1.11 and 1.4 `utils/dataclasses.py` (`AORecipeKwargs`; its documentation explains the
    padding), `commands/launch.py` (`--fp8_backend`); read, not run.
    """
    if not spec.stack.facts.float8_training:
        other = able(lambda one: one.facts.float8_training)
        yield _bf16(
            spec, f"accelerate {spec.stack.pins['accelerate']}", f"{spec.stack.name} cannot train in fp8",
            f", or `target {other}`",
        )  # fmt: skip


@rule("XP362", "fp8-with-the-strategy")
def fp8_strategy(spec: Spec) -> Iterator[Finding]:
    """`precision fp8` needs `strategy ddp` or `strategy fsdp`, without context parallelism.

    Why it is bad: DeepSpeed cannot combine fp8 layers with bf16 for the other layers: an fp8 run does not set the
    argument `bf16`, and transformers then requires `bf16.enabled` to be off, so the other layers would compute in fp32.
    FSDP1 flattens weights, and torchao cannot multiply flattened weights. Hybrid sharding and context parallelism are
    refused because xpc has not tested them with fp8.

    Without this rule: under ZeRO with bf16, ValueError before the first step ("bf16.enabled=True vs hf
    bf16|bf16_full_eval=False").

    Source: transformers 5.23 `integrations/deepspeed.py` (`trainer_config_process`), accelerate 1.15
    `utils/dataclasses.py` (`set_mixed_precision`); confirmed by running it. ddp and FSDP2 were trained and saved on CPU
    processes, and FSDP2 was resumed.
    """
    strategy = spec.text("strategy")
    if strategy not in STRATEGIES:
        sharded = spec.hardware.world > 1
        yield Finding(
            spec.location("strategy", "computes in bf16, fp16 or fp32"),
            f"{strategy} cannot be combined with fp8",
            "write `strategy fsdp`, or `precision bf16`" if sharded else "write `strategy ddp`, or `precision bf16`",
            (spec.label("precision", "fp8"),),
            spec.location("strategy").typed.replace(strategy, "fsdp" if sharded else "ddp", 1),
        )
    elif spec.context_parallel > 1:
        yield Finding(
            spec.location("strategy.context_parallel"),
            "context parallelism cannot be combined with fp8",
            "leave `context_parallel` out, or write `precision bf16`",
            (spec.label("precision", "fp8"),),
        )


@rule("XP363", "fp8-with-a-frozen-base")
def fp8_frozen_base(spec: Spec) -> Iterator[Finding]:
    """`precision fp8` cannot be combined with adapters or a quantized base.

    Why it is bad: accelerate replaces every linear layer whose sizes are multiples of 16. So the matrices of an adapter
    of rank 16, for example, are also rounded to fp8. torchao computes gradients of the frozen weights, which is wasted
    time, because these gradients are dropped. The layers of a quantized base are not replaced, so fp8 has no effect on
    them.

    Without this rule: nothing is reported.

    Source: accelerate 1.15 `utils/ao.py` (`filter_linear_layers`), torchao 0.18 `float8/float8_linear.py` (`backward`);
    confirmed by running it with ranks 8 and 16 on a CPU. LLaMA-Factory refuses fp8 over a quantized base, too.
    """
    quantized = spec.bits or "quantization_config" in spec.model.config or spec.in_mxfp4
    if not spec.lora and not quantized:
        return
    what = "a quantized base" if quantized else f"`{spec.adapter}`"
    related = spec.label(spec.adapter) if spec.lora else spec.model.label
    found = _bf16(spec, "replaces every linear layer", f"{what} cannot be combined with fp8")
    yield Finding(found.primary, found.message, found.help, (related,), found.replace)


@rule("XP364", "fp8-next-to-another-model", reads=("method.reference_free",))
def fp8_two_models(spec: Spec) -> Iterator[Finding]:
    """`precision fp8` needs a method that uses only one model: sft, reward, orpo or cpo.

    Why it is bad: only the trained model computes in fp8. A reference model, a teacher, and a vLLM that generates
    compute in bf16. So two models with the same weights give different log-probabilities, and the loss contains the
    rounding error of fp8.

    Without this rule: nothing is reported. In a test, the reference was an exact copy of a tiny model. Before the first
    step, model and reference gave log-probabilities of an answer of 64 tokens that differed by up to 0.49 instead of 0.

    Source: accelerate 1.15 `accelerator.py` (`prepare` converts layers, `prepare_model` does not), trl 1.16
    `dpo_trainer.py` (the reference goes through `prepare_model`); confirmed by running it on a CPU.
    """
    if spec.method.generates or spec.compares or spec.teacher is not None:
        found = _bf16(spec, "only for the model that is trained", f"{spec.method.name} cannot be trained in fp8")
        yield Finding(found.primary, found.message, found.help, (spec.label("method"),), found.replace)


@rule("XP365", "fp8-without-layers")
def fp8_layers(spec: Spec) -> Iterator[Finding]:
    """`precision fp8` needs a model whose layers are plain linear layers with sizes that are multiples of 16. Mixtures
    of experts, GPT-2 (whose layers are of the class `Conv1D`) and models that read images are refused.

    Why it is bad: torchao replaces only linear layers whose sizes are multiples of 16. The experts of a mixture are one
    stacked weight, which stays in bf16. In a model that reads images, accelerate would also convert the layers of the
    vision tower to fp8.

    Without this rule: nothing is reported, and most of the run computes in bf16. Before the first step, the bundle's
    runtime stops a run without any layer in fp8.

    Source: accelerate 1.15 `utils/ao.py` (`filter_linear_layers`), torchao 0.18 `float8/float8_linear_utils.py`
    (`swap_linear_layers`); confirmed by running it.
    """
    facts, kind = spec.model.facts, spec.model.model_type
    if kind in NOT_LINEAR:
        why = "its layers are not linear layers"
    elif spec.reads_images:
        why = "it reads images"
    elif facts is not None and facts.experts:
        why = "its experts stay in bf16"
    elif facts is not None and all(one.inputs % MULTIPLE or one.outputs % MULTIPLE for one in linear_layers(facts)):
        why = f"no layer's sizes are multiples of {MULTIPLE}"
    else:
        return
    found = _bf16(spec, "for linear layers", f"{spec.model.name} cannot compute in fp8: {why}")
    yield Finding(found.primary, found.message, found.help, (spec.model.label,), found.replace)


@rule("XP366", "fp8-not-compiled", "warning")
def fp8_not_compiled(spec: Spec) -> Iterator[Finding]:
    """With `precision fp8`, the model should be compiled.

    Why it is bad: the inputs of each fp8 product are scaled and cast. Only a compiler fuses the casts with other
    operations; without it, the casts take more time than the fp8 products save.

    Without this rule: nothing is reported, and the run is slower than in bf16.

    Source: torchao 0.18 `float8/README.md` (torch.compile is needed for competitive performance); read, not run.
    """
    gpu, compiled = spec.hardware.gpu, spec.flag("model.compile") or spec.extra_value("trl", "torch_compile") is True
    if compiled or gpu is None or gpu.capability < WITH_FP8 or not spec.stack.facts.float8_training:
        return
    yield Finding(
        spec.location("precision", "casts before each product"),
        "fp8 without compilation is slower than bf16",
        "write `model(compile)`, or `precision bf16`",
    )


@rule("XP367", "fp8-loaded-in-one-process")
def fp8_loaded_once(spec: Spec) -> Iterator[Finding]:
    """With `precision fp8` and `strategy fsdp`, every process must load the model, so `fsdp_cpu_ram_efficient_loading`
    must be off.

    Why it is bad: with `fsdp_cpu_ram_efficient_loading`, only process 0 loads the weights, and the other processes get
    them later. accelerate would convert layers to fp8 before all processes have the weights.

    Without this rule: ValueError in the trainer's constructor ("torchao with FSDP2 and cpu_ram_efficient_loading is not
    supported").

    Source: accelerate 1.15 `accelerator.py` (`__init__`); confirmed by running it.
    """
    if spec.sharded_by_fsdp and spec.extra_value("accelerate", LOADS_ONCE) is True:
        yield Finding(
            spec.extra_location("accelerate", LOADS_ONCE),
            "a model in fp8 cannot be loaded by process 0 alone",
            write(f"{LOADS_ONCE} = false"),
            (spec.label("precision", "fp8"),),
        )
