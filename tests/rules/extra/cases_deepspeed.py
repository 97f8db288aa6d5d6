"""Cases of `extra deepspeed` (XP44x, XP49x)."""

from __future__ import annotations

from case_support import Case, spec
from cases_strategy import extra, zero

CASES: tuple[Case, ...] = (
    Case(
        "XP440", spec(zero("sub_group_size = 1B"), strategy="ddp"), spec(zero("sub_group_size = 1B"), strategy="zero3")
    ),
    Case(
        "XP441",
        spec(zero("offload_param.pin_memory = true"), strategy="zero2"),
        spec(zero("offload_param.pin_memory = true"), strategy="zero3 offload"),
    ),
    Case(
        "XP441",
        spec(zero("parameter_alignment = true"), strategy="zero3"),
        spec(zero("parameter_alignment = true"), strategy="zero2"),
        variant="of-1-and-2",
    ),
    Case(
        "XP442",
        spec(zero("stage3_gather_16bit_weights_on_model_save = false"), strategy="zero3"),
        spec(zero("stage3_gather_16bit_weights_on_model_save = true"), strategy="zero3"),
    ),
    Case(
        "XP443",
        spec(zero("offload_optimizer.ratio = 0.5"), strategy="zero2 offload"),
        spec(zero("offload_optimizer.ratio = 0.5"), strategy="zero3 offload"),
    ),
    Case(
        "XP444",
        spec(zero('offload_param.device = "nvme"'), strategy="zero3 offload"),
        spec(
            zero('offload_param.device = "nvme"', 'offload_param.nvme_path = "/local_nvme"'), strategy="zero3 offload"
        ),
    ),
    Case(
        "XP444",
        spec(zero('offload_optimizer.device = "nvme"'), strategy="zero2 offload"),
        spec(
            zero('offload_optimizer.device = "nvme"', 'offload_optimizer.nvme_path = "/nvme"'),
            strategy="zero3(offload=optimizer)",
        ),
        variant="of-zero2",
    ),
    Case(
        "XP444",
        spec(zero('offload_optimizer.device = "cpu"'), strategy="zero2"),
        spec(strategy="zero2 offload"),
        variant="cpu",
    ),
    Case(
        "XP441",
        spec(zero("elastic_checkpoint = true"), strategy="zero3"),
        spec(zero("elastic_checkpoint = true"), strategy="zero2"),
        variant="elastic",
    ),
    Case(
        "XP445",
        spec(extra("deepspeed", "bf16.bf16_master_weights_and_grads = true"), strategy="zero2"),
        spec(extra("deepspeed", "bf16.bf16_master_weights_and_grads = true"), strategy="zero2 offload"),
    ),
    Case(
        "XP445",
        spec(extra("deepspeed", "fp16.fp16_master_weights_and_grads = true"), "target trl-0.24", strategy="zero3"),
        spec(extra("deepspeed", "fp16.fp16_master_weights_and_grads = false"), "target trl-0.24", strategy="zero3"),
        variant="idle",
    ),
    Case(
        "XP445",
        spec(extra("deepspeed", "bf16.bf16_optimizer_states = true"), strategy="zero3"),
        spec(
            extra("deepspeed", "bf16.bf16_optimizer_states = true", "bf16.bf16_master_weights_and_grads = true"),
            strategy="zero3",
        ),
        variant="states",
    ),
    Case(
        "XP445",
        spec(
            extra("deepspeed", "fp16.fp16_master_weights_and_grads = true"),
            "target trl-0.18",
            strategy="zero3 offload",
            precision="fp16",
        ),
        spec(
            extra("deepspeed", "fp16.fp16_master_weights_and_grads = true"),
            "target trl-0.18",
            strategy="zero2 offload",
            precision="fp16",
        ),
        variant="fp16",
    ),
    Case(
        "XP446",
        spec(extra("deepspeed", 'gradient_allreduce_op = "sum"'), strategy="zero3"),
        spec(extra("deepspeed", 'gradient_allreduce_op = "mean"'), strategy="zero3"),
    ),
    Case(
        "XP446",
        spec(extra("deepspeed", 'gradient_allreduce_op = "sum"'), strategy="zero2"),
        spec(extra("deepspeed", 'gradient_allreduce_op = "mean"'), strategy="zero2"),
        variant="warning",
    ),
    Case(
        "XP447",
        spec(extra("deepspeed", "gradient_predivide_factor = 8"), strategy="zero2"),
        spec(extra("deepspeed", "gradient_predivide_factor = 8"), strategy="zero2(reduce_scatter=false)"),
    ),
    Case(
        "XP447",
        spec(extra("deepspeed", "prescale_gradients = true"), strategy="zero3"),
        spec(extra("deepspeed", "prescale_gradients = true"), strategy="zero1"),
        variant="prescale",
    ),
    Case(
        "XP491",
        spec(extra("deepspeed", "managed_gradient_accumulation = false"), strategy="zero2"),
        spec(extra("deepspeed", "managed_gradient_accumulation = true"), strategy="zero2"),
    ),
    Case(
        "XP448",
        spec(zero("compute_grad_norm = false"), strategy="zero2"),
        spec(zero("compute_grad_norm = false"), "optimizer adamw(clip=0)", strategy="zero2"),
    ),
    Case(
        "XP448",
        spec(zero("compute_grad_norm = false"), "optimizer adamw(clip=0)", strategy="zero3"),
        spec(zero("compute_grad_norm = true"), "optimizer adamw(clip=0)", strategy="zero3"),
        variant="zero3",
    ),
    Case(
        "XP449",
        spec(zero("legacy_stage1 = true"), strategy="zero1"),
        spec(zero("legacy_stage1 = false"), strategy="zero1"),
    ),
    Case(
        "XP492",
        spec(zero("offload_optimizer.pin_memory = false"), strategy="zero2"),
        spec(zero("offload_optimizer.pin_memory = false"), strategy="zero2 offload"),
    ),
    Case(
        "XP493",
        spec(extra("deepspeed", "fp16.initial_scale_power = 12"), strategy="zero2"),
        spec(extra("deepspeed", "fp16.initial_scale_power = 12"), strategy="zero2", precision="fp16"),
    ),
    *(
        Case(code, spec(extra("deepspeed", line)), spec(extra("deepspeed", right)) if right else spec(), variant=name)
        for code, name, line, right in (
            (
                "XP121",
                "zero-typo",
                "zero_optimization.algather_partitions = true",
                "zero_optimization.allgather_partitions = true",
            ),
            ("XP121", "deepspeed-typo", "gradient_clip = 1.0", ""),
            ("XP121", "deepspeed-removed", "elasticity = false", ""),
            ("XP120", "deepspeed-optimizer", 'optimizer.type = "OneBitAdam"', ""),
            ("XP120", "max-grad-norm", "optimizer.params.max_grad_norm = 1.0", ""),
            ("XP120", "no-zero", "zero_optimization = false", ""),
            ("XP104", "block", "flops_profiler = true", "flops_profiler.enabled = true"),
            (
                "XP104",
                "bounds",
                "zero_optimization.sub_group_size = -1",
                "zero_optimization.allgather_partitions = true",
            ),
        )
    ),
)
