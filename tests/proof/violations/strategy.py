"""Proofs of rules about sharding, launchers and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from case_support import spec
from prove import GONE, Proof
from spec_parts import extra, zero

BEST = (extra("load_best_model_at_end = true"), "data(holdout=5%)", "eval(every=100)")
BY_SIZE = 'fsdp_auto_wrap_policy = "SIZE_BASED_WRAP"'
WEIGHTS_ONLY = 'save "out/run" every=100 full_state=false resume=never'
PAIRS = "qwen2.5-3b on ultrafeedback-binarized for 3 epochs"
ROUTED = {"train": "mixtral-8x7b-v0.1 on ultrafeedback-binarized for 1 epochs", "hardware": "16 x h200-141gb",
          "strategy": "zero3", "batch": "gbs=16 micro=1"}  # fmt: skip
"""A mixture of experts that does not fit in a GPU unless its weights are sharded."""
CP = "parallelism_config.parallelism_config_"
FSDP = "fsdp_config.fsdp_"
NORM = 4.0
"""A threshold between two values for the norm of the tiny model's first gradient: 2.83 if the gradient is the mean over
two processes, and 5.67 if it is the sum.
"""


def cpu(*more: str, strategy: str = "zero2", train: str = "qwen2.5-3b on infinity-instruct for 3 epochs") -> str:
    """A spec for two CPU processes. Proofs run it unchanged, not as a CPU variant."""
    return _text(*more, hardware="2 x cpu", strategy=strategy, precision="fp32", train=train)


def two(*more: str, strategy: str = "fsdp", train: str = "qwen2.5-3b on infinity-instruct for 3 epochs") -> str:
    """A spec for two GPUs. Proofs run its FSDP on the CPU, over gloo."""
    return _text(*more, hardware="2 x h100-80gb", strategy=strategy, precision="bf16", train=train)


def _text(
    *more: str,
    hardware: str,
    strategy: str,
    precision: str,
    train: str = "qwen2.5-3b on infinity-instruct for 3 epochs",
) -> str:
    head = f"xpc 1\ntrain {train}\nhardware {hardware}\nstrategy {strategy}\n"
    save = () if any(line.startswith("save") for line in more) else ('save "out/run"',)
    return head + "\n".join([f"precision {precision}", "batch gbs=4 micro=2", *more, *save]) + "\n"


FP16_MASTERS = spec(extra("fp16.fp16_master_weights_and_grads = true", block="deepspeed"), "target trl-0.18",
                    precision="fp16")  # fmt: skip


def exported(name: str, value: str, plugin: str) -> Any:
    """Whether the launcher has exported a variable that the plugin in the worker then ignores."""

    def holds(seen: Mapping[str, Any]) -> bool:
        return seen["exported"].get(name) == value and seen["plugin"][plugin] is None

    return holds


def meshed(*more: str) -> str:
    """A spec for four GPUs, of which two hold a copy of the model together. It saves after its first step."""
    text = two(*more, 'save "out/run" every=1', "target trl-0.24", strategy="hsdp(shard=2)")
    return text.replace("2 x h100-80gb", "4 x h100-80gb").replace("gbs=4", "gbs=8")


AC, SEEN = "fsdp_activation_checkpointing", {"keep": ("fsdp",), "processes": 2}


def summed(strategy: str) -> str:
    """A spec for two CPU processes with two micro-batches per step. On its stack, ZeRO-2 keeps the gradients of only
    one micro-batch.
    """
    return spec("target trl-0.24", hardware="2 x cpu", strategy=strategy, precision="fp32", batch="gbs=8 micro=2")


SHARDED: tuple[Proof, ...] = (
    Proof("B22", "XP488", at="init", measure="strategy.forgets", expect={"forgets": True},
          text=summed("zero2"), legal=summed("zero1")),
    Proof("D01", "XP120", case="XP120-fsdp-and-deepspeed", at="init", text=cpu(extra('fsdp = "full_shard"')),
          legal=cpu(), arguments={"fsdp": "full_shard"}, raises="ValueError", match="together with --deepspeed"),
    Proof("D02", "XP403", at="init", onto="legal", text=_text(hardware="1 x h100-80gb", strategy="fsdp", precision="bf16"),
          legal=_text(hardware="1 x h100-80gb", strategy="ddp", precision="bf16"), arguments={"fsdp": "full_shard"},
          raises="ValueError", match="only works in distributed training"),
    Proof("D03", "XP402", at="init", text=cpu(strategy="fsdp"), legal=cpu(strategy="zero3"),
          measure="state.distributed", expect={"processes": 2, "type": "MULTI_CPU"}),
    Proof("D05", "XP401", at="init", text=two("memory(checkpointing)", extra(f"{AC} = true", block="accelerate")),
          legal=two("memory(checkpointing)", extra(f"{AC} = false", block="accelerate")), raises="ValueError", match="can't both be set to True", **SEEN),
    Proof("D08", "XP411", at="init", text=two('save "out/run" full_state=false resume=never', strategy="fsdp(state_dict=sharded)"),
          legal=two('save "out/run" full_state=false resume=never'), raises="ValueError", match="SHARDED_STATE_DICT", **SEEN),
    Proof("D09", "XP421", at="init", text=two(*BEST, WEIGHTS_ONLY), legal=two(*BEST, 'save "out/run" every=100'),
          raises="ValueError", match="can't be used with `save_only_model`", **SEEN),
    Proof("D10", "XP120", case="XP120-sharding-strategy", at="launch", yaml={f"{FSDP}sharding_strategy": "HYBRID_SHARD"},
          measure="strategy.fsdp", expect=exported("FSDP_SHARDING_STRATEGY", "HYBRID_SHARD", "sharding_strategy")),
    Proof("D11", "XP120", case="XP120-fsdp-hybrid", at="config", arguments={"fsdp": "hybrid_shard"},
          raises="ValueError", match="hybrid|HYBRID|not supported"),
    Proof("D12", "XP410", at="config", arguments={"fsdp": True, "fsdp_config": {"version": 1}}, warns="(?i)fsdp.*(1|v1)"),
    Proof("D13", "XP120", case="XP120-fsdp-list", at="config", arguments={"fsdp": ["full_shard", "auto_wrap"]},
          warns="(?i)fsdp.*deprecated|deprecated.*fsdp"),
    Proof("D14", "XP120", case="XP120-fsdp-unknown", at="config", arguments={"fsdp": "fully_shard"}, raises="ValueError"),
    Proof("D15", "XP121", case="XP121-fsdp-key", at="launch", yaml={"fsdp_config.fsdp_cpu_offload": True},
          measure="strategy.fsdp",
          expect=lambda seen: "fsdp_cpu_offload" in seen["file"] and seen["exported"]["FSDP_OFFLOAD_PARAMS"] == "false"),
    Proof("D16", "XP432", at="launch", measure="strategy.fsdp",
          expect=exported("FSDP_FORWARD_PREFETCH", "true", "forward_prefetch")),
    Proof("D16", "XP432", at="launch", measure="strategy.prefetching", raises="ValueError", match="not yet implemented",
          variant="plugin"),
    Proof("D17", "XP432", text=two(extra('fsdp_backward_prefetch = "BACKWARD_POST"', block="accelerate")), legal=two(),
          at="launch", measure="strategy.fsdp",
          expect=exported("FSDP_BACKWARD_PREFETCH", "BACKWARD_POST", "backward_prefetch")),
    Proof("D18", "XP106", case="XP106-local-state", at="launch", onto="legal",
          yaml={f"{FSDP}state_dict_type": "LOCAL_STATE_DICT"}, measure="strategy.fsdp", raises="ValueError",
          match="LOCAL_STATE_DICT"),
    Proof("D19", "XP104", case="XP104-reshard", at="launch", onto="legal", yaml={f"{FSDP}reshard_after_forward": "FULL_SHARD"},
          measure="strategy.fsdp", raises="ValueError", match="(?i)full_shard"),
    Proof("D20", "XP431", at="launch", measure="strategy.fsdp", raises="ValueError", match="requires `activation_checkpointing"),
    Proof("D21", "XP104", case="XP104-wrap-policy", at="launch", onto="legal", yaml={f"{FSDP}auto_wrap_policy": "LAYERS"},
          measure="strategy.fsdp", raises="ValueError", match="Invalid auto wrap policy"),
    Proof("D22", "XP434", at="train", text=two(extra('fsdp_transformer_layer_cls_to_wrap = "LlamaDecoderLayer"', block="accelerate")),
          legal=two(), raises="ValueError", match="Could not find the transformer layer class", **SEEN),
    Proof("D23", "XP435", at="train", text=two(extra(BY_SIZE, "fsdp_min_num_params = 0", block="accelerate")),
          legal=two(), measure="strategy.units", expect=lambda seen: seen["units"] < 5, **SEEN),
    Proof("D23", "XP435", at="train", text=two(extra(BY_SIZE, "fsdp_min_num_params = 1000", block="accelerate")),
          legal=two(), raises="ValueError", match="do not implement forward", variant="by-size", **SEEN),
    Proof("D24", "XP433", at="launch", raises="ValueError", match="fsdp_sync_module_states"),
    Proof("D24", "XP433", at="launch", text=two(extra("fsdp_sync_module_states = false", block="accelerate")), legal=two(),
          raises="ValueError", match="fsdp_sync_module_states", variant="fsdp2"),
    Proof("D26", "XP407", at="train", text=two("optimizer adamw8bit"), legal=two("optimizer adamw"), raises="NotImplementedError",
          match="(?i)dtensor|sharding|operator", keep=("fsdp", "optim"), processes=2),
    Proof("D26", "XP407", at="train", text=two("optimizer lion"), legal=two("optimizer adamw"), raises="NotImplementedError",
          match="(?i)dtensor|sharding|operator", keep=("fsdp", "optim"), processes=2, variant="lion"),
    Proof("D27", "XP407", case="XP407-offloaded", needs="a GPU, to which FSDP1 moves a shard before each step"),
    Proof("D32", "XP420", at="train", processes=2, text=two(extra("ddp_find_unused_parameters = true"),
          "memory(checkpointing(reentrant=true))", strategy="ddp"), legal=two(extra("ddp_find_unused_parameters = true"),
          "memory(checkpointing(reentrant=false))", strategy="ddp"), raises="RuntimeError", match="ready"),
    Proof("D73", "XP408", case="XP408-no-shard", at="launch", measure="strategy.mesh", raises="ValueError",
          match="no dimension for FSDP"),
    Proof("D112", "XP582", case="XP582-mesh", at="train", steps=1, text=meshed("lora"), legal=meshed(), keep=("fsdp",),
          processes=4, raises="RuntimeError", match="invalid python storage"),
    Proof("D79", "XP413", at="train", family="jetmoe", raises="ValueError", match="checkpointing"),
)  # fmt: skip

ZERO: tuple[Proof, ...] = (
    Proof("D36", "XP422", at="init", text=cpu(extra("auto_find_batch_size = true"), strategy="zero3"),
          legal=cpu(strategy="zero3"), raises="ValueError", match="auto_find_batch_size"),
    Proof("D37", "XP442", at="save", text=cpu(zero("stage3_gather_16bit_weights_on_model_save = false"), strategy="zero3"),
          legal=cpu(strategy="zero3"), measure="saved.final",
          expect=lambda seen: "model.safetensors" not in seen["files"] and "zero_to_fp32.py" in seen["files"]),
    Proof("D38", "XP406", at="config", measure="strategy.cpu_optimizer",
          expect={"asked": "SGD", "adam": True, "decoupled": False}),
    Proof("D39", "XP441", at="train", text=cpu(zero('offload_param.device = "cpu"')), legal=cpu(strategy="zero3"),
          measure="strategy.placed", expect={"asked": "cpu", "sharded": False}),
    Proof("D40", "XP443", at="deepspeed", raises="ValidationError", match="Partial offloading"),
    Proof("D41", "XP444", at="load", text=cpu(zero('offload_param.device = "nvme"'), strategy="zero3"),
          legal=cpu(strategy="zero3"), raises="AssertionError", match="nvme_path"),
    Proof("D42", "XP121", case="XP121-zero-typo", at="deepspeed", deepspeed={"zero_optimization.algather_partitions": True},
          raises="ValidationError", match="algather_partitions"),
    Proof("D43", "XP121", case="XP121-deepspeed-typo", at="config", deepspeed={"gradient_clip": 0.5, "gradient_clipping": GONE},
          measure="strategy.settings", expect=lambda seen: "gradient_clip" in seen["stated"] and seen["clipping"] != 0.5),
    Proof("D44", "XP121", case="XP121-deepspeed-removed", at="deepspeed", deepspeed={"elasticity": False},
          raises="DeepSpeedConfigError", match="removed"),
    Proof("D45", "XP120", case="XP120-deepspeed-optimizer", at="train",
          text=cpu(extra('optimizer.type = "OneBitAdam"', block="deepspeed")), legal=cpu(),
          deepspeed={"optimizer.type": "OneBitAdam"}, raises="AssertionError", match="not a supported"),
    Proof("D46", "XP120", case="XP120-max-grad-norm", at="train",
          text=cpu(extra("optimizer.params.max_grad_norm = 1.0", block="deepspeed")), legal=cpu(),
          deepspeed={"optimizer.params.max_grad_norm": 1.0}, raises="ValueError", match="max_grad_norm"),
    Proof("D47", "XP120", case="XP120-no-zero", at="config", deepspeed={"zero_optimization": GONE}, raises="ValueError",
          match="ZeRO"),
    Proof("D48", "XP106", case="XP106-zero4", at="deepspeed", onto="legal", deepspeed={"zero_optimization.stage": 4},
          raises="ValidationError", match="stage"),
    Proof("D49", "XP445", at="train", text=cpu(extra("bf16.bf16_master_weights_and_grads = true", block="deepspeed")), legal=cpu(),
          raises="AssertionError", match="DeepSpeedCPUAdam"),
    Proof("D49", "XP445", case="XP445-states", at="deepspeed", raises="AssertionError", match="bf16_master_weights_and_grads",
          variant="states"),
    Proof("D49", "XP445", case="XP445-fp16", at="deepspeed", raises="AssertionError", match="ZeRO Stage 2", variant="fp16"),
    Proof("D49", "XP445", case="XP445-idle", at="deepspeed", raises="AssertionError", match="ZeRO Stage 2", variant="idle"),
    Proof("D49", "XP445", at="train", target="trl-0.24", raises="AssertionError", match="CPU ?Adam", variant="idle-zero2",
          text=cpu("target trl-0.24", extra("fp16.fp16_master_weights_and_grads = true", block="deepspeed")),
          legal=cpu("target trl-0.24")),
    Proof("D49", "XP445", text=FP16_MASTERS, legal=FP16_MASTERS.replace("zero2", "zero2 offload"),
          needs="a GPU, because fp16 with ZeRO-2 needs one", variant="fp16-on-the-gpu"),
    Proof("D50", "XP446", at="deepspeed", raises="ValueError", match="ZeRO stage 3"),
    Proof("D51", "XP447", at="train", text=cpu(extra("prescale_gradients = true", block="deepspeed")),
          legal=cpu(extra("prescale_gradients = true", block="deepspeed"), strategy="zero2(reduce_scatter=false)"),
          raises="AssertionError", match="pre-scale"),
    Proof("D51", "XP447", at="train", text=cpu(extra("gradient_predivide_factor = 2", block="deepspeed"), strategy="zero3"),
          legal=cpu(strategy="zero3"), raises="AssertionError", match="gradient_predivide_factor", variant="zero3"),
    Proof("D52", "XP138", at="init", eager=True, measure="muon.trained", raises="ValueError", match="reduce scatter cannot be used"),
    *(Proof("D105", "XP491", at="train", raises="AssertionError", match="managed_gradient_accumulation=False",
            text=cpu(extra("managed_gradient_accumulation = false", block="deepspeed"), strategy=f"zero{stage}"),
            legal=cpu(extra("managed_gradient_accumulation = true", block="deepspeed"), strategy=f"zero{stage}"),
            variant=f"zero{stage}") for stage in (1, 2, 3)),
    Proof("D53", "XP448", at="train", text=cpu(zero("compute_grad_norm = false")),
          legal=cpu(zero("compute_grad_norm = false"), "optimizer adamw(clip=0)"), raises="ValueError",
          match="gradient_clipping=0"),
    Proof("D53", "XP448", case="XP448-zero3", at="deepspeed", raises="ValidationError", match="compute_grad_norm",
          variant="zero3"),
    Proof("D50", "XP446", at="train", text=cpu(extra('gradient_allreduce_op = "sum"', block="deepspeed"), "track(every=1)"),
          legal=cpu("track(every=1)"), measure="strategy.gradients", expect=lambda seen: seen["norm"] > NORM,
          variant="sum"),
    Proof("D110", "XP424", at="init", common={"save_strategy": "steps", "save_steps": 1}, measure="saved.loaded",
          text=cpu(zero("elastic_checkpoint = true"), 'save "out/run" every=1'), legal=cpu('save "out/run" every=1'),
          raises="AssertionError", match=""),
    Proof("D110", "XP424", case="XP424-first", at="train", common={"save_strategy": "steps", "save_steps": 1},
          text=cpu(zero("elastic_checkpoint = true"), "target trl-0.18", 'save "out/run" every=1'),
          legal=cpu("target trl-0.18", 'save "out/run" every=1'), raises="IndexError", match="0-dim", variant="first"),
    Proof("D93", "XP449", at="train", text=cpu(zero("legacy_stage1 = true")), legal=cpu(), raises="Exception",
          match="deprecated version of ZeRO Stage 1"),
    Proof("D94", "XP492", at="config", measure="strategy.settings", expect={"offload": "none"}),
    Proof("D56", "XP120", case="XP120-beside-deepspeed", at="launch", yaml={"mixed_precision": "bf16"},
          measure="strategy.worker", raises="ValueError", match="deepspeed_config_file"),
)  # fmt: skip

CONTEXT: tuple[Proof, ...] = (
    Proof("D57", "XP415", at="launch", measure="strategy.mesh", raises="ValueError", match="does not match"),
    Proof("D58", "XP120", case="XP120-cp-and-sp", at="launch", yaml={f"{CP}sp_size": 2}, measure="strategy.mesh",
          raises="ValueError", match="mutually exclusive"),
    Proof("D59", "XP415", case="XP415-one-shard", at="launch", measure="strategy.mesh", raises="ValueError",
          match="pure data parallelism"),
    Proof("D60", "XP107", case="XP107-context-parallel", at="launch", onto="legal",
          text=two(strategy="fsdp(context_parallel=0)"), legal=two(strategy="fsdp(context_parallel=2)"),
          yaml={f"{CP}cp_size": 0}, measure="strategy.mesh", raises="ValueError", match="cp_size must be at least 1"),
    Proof("D61", "XP414", at="init", text=two(strategy="fsdp1(context_parallel=2)"), legal=two(strategy="fsdp(context_parallel=2)"),
          raises="ValueError", match="requires FSDP2", **SEEN),
    Proof("D62", "XP416", at="init", text=two("model(attn=eager)", strategy="fsdp(context_parallel=2)"),
          legal=two(strategy="fsdp(context_parallel=2)"), measure="strategy.shared_inputs", raises="ValueError",
          match="only with SDPA"),
    Proof("D85", "XP490", at="init", text=two(extra("pad_to_multiple_of = 11"), strategy="fsdp(context_parallel=2)"),
          legal=two(strategy="fsdp(context_parallel=2)"), measure="strategy.pieces",
          expect=lambda seen: len(set(seen["pieces"])) > 1),
    Proof("D85", "XP490", at="init", text=two(extra("pad_to_multiple_of = 6"), strategy="fsdp(context_parallel=2)"),
          legal=two(strategy="fsdp(context_parallel=2)"), measure="strategy.pieces",
          expect=lambda seen: len(set(seen["pieces"])) == 1 and not seen["balanced"], variant="unbalanced"),
    Proof("D63", "XP418", at="load", legal_family="qwen2", measure="strategy.hooks", raises="ValueError",
          match="sliding_attention"),
    Proof("D65", "XP419", at="launch", measure="strategy.mesh_of_the_arguments", raises="ValueError",
          match="sequence-dim parallelism"),
    Proof("D66", "XP416", case="XP416-zero", at="launch", measure="ulysses.mesh", raises="ValueError",
          match="not supported with sequence"),
    Proof("D67", "XP495", case="XP495-heads", at="launch", measure="ulysses.heads", raises="ValueError",
          match="not divisible by SP size"),
    Proof("D68", "XP490", case="XP490-zero", at="init", measure="ulysses.chunks", raises="ValueError",
          match="isn't divisible by sp-size"),
    Proof("D70", "XP418", case="XP418-zero", at="launch", legal_family="llama", measure="ulysses.attention",
          expect=lambda seen: seen["changed"] > 0.01),
    Proof("D71", "XP496", at="launch", measure="ulysses.trainer", raises="ValueError",
          match="not supported with DeepSpeed"),
    Proof("D71", "XP496", case="XP496-smoothing", at="launch", measure="ulysses.trainer",
          raises="ValueError", match="not supported with DeepSpeed", variant="smoothing"),
    Proof("D101", "XP497", at="launch", legal=cpu(), measure="ulysses.trainer", expect={"counted": False}),
    Proof("A13", "XP417", at="init", text=two(strategy="fsdp(context_parallel=2)").replace("micro=2", "micro=2 packing(isolate=mask)"),
          legal=two(strategy="fsdp(context_parallel=2)"), raises="ValueError", match="not compatible with context", **SEEN),
)  # fmt: skip

LAUNCH: tuple[Proof, ...] = (
    Proof("D87", "XP430", at="launch", measure="strategy.fsdp",
          expect=lambda seen: "fsdp_min_num_params" in seen["file"] and not seen["exported"]),
    Proof("N03", "XP120", case="XP120-gpu-ids", at="launch", yaml={"gpu_ids": "0"}, raises="ValueError", match="gpu_ids"),
    Proof("N04", "XP120", case="XP120-num-processes", at="launch", yaml={"num_processes": -1}, raises="ValueError",
          match="num_processes"),
    Proof("N05", "XP121", case="XP121-accelerate-key", at="launch", yaml={"num_proceses": 8}, raises="ValueError",
          match="num_proceses"),
    Proof("N06", "XP121", case="XP121-fsdp-typo", at="launch", yaml={f"{FSDP}cpu_ram_eficient_loading": False},
          measure="strategy.fsdp", expect=lambda seen: "eficient" in seen["file"]
          and seen["exported"]["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "true"),
    Proof("N07", "XP106", case="XP106-bfloat16", at="launch", onto="legal", legal=two(), text=two().replace("bf16", "bfloat16"),
          yaml={"mixed_precision": "bfloat16"}, raises="ValueError", match="mixed_precision"),
    Proof("N08", "XP414", case="XP414-zero", at="launch", measure="strategy.flags", raises="ValueError",
          legal=spec("target trl-0.24", strategy="fsdp(context_parallel=8)"), match="use_parallelism_config"),
    Proof("N16", "XP120", at="launch", text=cpu(extra('ddp_backend = "mpi"'), strategy="ddp"),
          legal=cpu(strategy="ddp"), arguments={"ddp_backend": "mpi"}, measure="strategy.group", raises="ValueError",
          match="(?i)mpi|backend"),
    Proof("N20", "XP803", at="init", text=cpu("launch local(nccl_timeout=2s)"), legal=cpu("launch local(nccl_timeout=1h)"),
          measure="strategy.waits", raises="RuntimeError", match="(?i)timed out|timeout|closed"),
)  # fmt: skip

EVERY = {**ROUTED, "train": ROUTED["train"].replace("mixtral-8x7b-v0.1", "qwen3-30b-a3b")}
"""A mixture of experts whose class in transformers 4.52 computes every expert, even an expert to which no token is
routed.
"""


def recomputed(*more: str, target: str) -> str:
    """A spec for two CPU processes that trains only two layers of the model."""
    return cpu("freeze(except_last=2, layer_modules=[mlp])", f"target {target}", *more, strategy="zero3")


def few_tokens(line: str, target: str) -> str:
    """A spec for two CPU processes that train a mixture of experts on two tokens each, too few to reach every expert."""
    text = cpu(line, f"target {target}", "model(chat_template=mistral)", strategy="ddp",
               train="mixtral-8x7b-v0.1 on infinity-instruct for 3 epochs")  # fmt: skip
    return text.replace("gbs=4 micro=2", "gbs=2 micro=1 seq=2")


def unreached(target: str) -> Proof:
    """A proof about experts that get no token in a process, under ddp with reentrant recomputation."""
    return Proof(
        "D111", "XP412", at="train", variant=target, steps=6, raises="RuntimeError",
        match="Expected to have finished reduction",
        text=few_tokens("memory(checkpointing(reentrant=true))", target),
        legal=few_tokens("memory(checkpointing(reentrant=false))", target),
    )  # fmt: skip


def adapted(target: str) -> Proof:
    """A proof about adapters under ZeRO-3 with non-reentrant recomputation. With this combination, torch raises a
    CheckpointError on this stack.
    """
    return Proof(
        "D98",
        "XP572",
        at="load",
        case="XP572-adapters",
        variant=target,
        measure="adapters.trained",
        raises="CheckpointError",
        match="different metadata",
        text=cpu("lora", "memory(checkpointing(reentrant=false))", f"target {target}", strategy="zero3"),
        legal=cpu("lora", f"target {target}", strategy="zero3"),
    )


EXPERTS = (
    Proof("D97", "XP571", at="load", raises="ValueError", match="not been implemented on CPU"),
    Proof(
        "D97",
        "XP571",
        at="train",
        raises="ValueError",
        match="not been implemented on CPU",
        text=cpu(zero("zero_quantized_gradients = true"), strategy="zero3"),
        legal=cpu(strategy="zero3"),
        variant="gradients",
    ),
    Proof(
        "D98",
        "XP572",
        at="load",
        measure="strategy.frozen",
        raises="CheckpointError",
        match="different metadata",
        text=recomputed("memory(checkpointing(reentrant=false))", target="trl-0.18"),
        legal=recomputed(target="trl-0.18"),
    ),
    adapted("trl-0.18"),
    adapted("trl-0.24"),
    Proof(
        "D99",
        "XP574",
        at="load",
        family="opt",
        legal_family="opt",
        measure="strategy.frozen",
        raises="RunError",
        match="no weight of this model has that name",
    ),
    Proof(
        "P34",
        "XP573",
        at="load",
        measure="precision.loaded",
        expect={"as_stated": False},
        text=cpu("lora", "model(dtype=bf16)", strategy="zero3"),
        legal=cpu("lora", strategy="zero3"),
    ),
    Proof(
        "P36",
        "XP576",
        at="train",
        raises="RuntimeError",
        match="same dtype",
        text=cpu("lora", "model(dtype=bf16)", "method reward", train=PAIRS),
        legal=cpu("lora", "method reward", train=PAIRS),
    ),
    Proof(
        "D96",
        "XP570",
        at="load",
        measure="strategy.experts",
        expect={"same": False},
        legal=spec("method dpo", "target trl-0.18", **EVERY),
    ),
    unreached("trl-0.18"),
    unreached("trl-0.24"),
)
MEMORY = tuple(Proof("D84", code, needs="a GPU, whose memory would run out") for code in ("XP480", "XP960", "XP961"))

PROOFS: tuple[Proof, ...] = (*EXPERTS, *MEMORY, *SHARDED, *ZERO, *CONTEXT, *LAUNCH)
