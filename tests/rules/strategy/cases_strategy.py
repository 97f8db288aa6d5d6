"""Cases of sharding, launchers and nodes (XP40x to XP44x, XP49x, XP80x)."""

from __future__ import annotations

import json

from case_support import Case, on_cpu, spec

ONE_GPU, TWO_GPUS = "1 x h100-80gb", "2 x h100-80gb"
NODES = {"batch": "gbs=128 micro=8"}
JETMOE = {
    "config.json": json.dumps(
        {"model_type": "jetmoe", "hidden_size": 64, "num_hidden_layers": 2, "num_local_experts": 8}
    )
}
BY_SIZE = 'fsdp_auto_wrap_policy = "SIZE_BASED_WRAP"'
WEIGHTS_ONLY = 'save "out/run" every=100 full_state=false resume=never'
BEST = ("extra trl {", "  load_best_model_at_end = true", "}", "data(holdout=5%)", "eval(every=100)")


def extra(target: str, *lines: str) -> str:
    """An `extra` block."""
    return "\n".join([f"extra {target} {{", *(f"  {line}" for line in lines), "}"])


def zero(*lines: str) -> str:
    """`extra deepspeed` with keys of its `zero_optimization`."""
    return extra("deepspeed", *(f"zero_optimization.{line}" for line in lines))


SHARDING: tuple[Case, ...] = (
    Case("XP401", spec(strategy="fsdp(activation_checkpointing)"), spec("memory(checkpointing)", strategy="fsdp")),
    Case(
        "XP401",
        spec(extra("accelerate", "fsdp_activation_checkpointing = true"), strategy="fsdp"),
        spec(extra("accelerate", "fsdp_activation_checkpointing = false"), strategy="fsdp"),
        variant="in-extra",
    ),
    Case("XP402", on_cpu(strategy="fsdp"), on_cpu(strategy="zero3")),
    Case("XP403", spec(hardware=ONE_GPU, strategy="fsdp"), spec(hardware=TWO_GPUS, strategy="fsdp")),
    Case("XP404", spec(strategy="ddp(allgather_bucket=500M)"), spec(strategy="zero2(allgather_bucket=500M)")),
    Case(
        "XP404",
        spec(strategy="zero3(round_robin_gradients)"),
        spec(strategy="zero2(round_robin_gradients)"),
        variant="of-another-stage",
    ),
    Case("XP405", spec(strategy="ddp offload"), spec(strategy="zero2 offload")),
    Case("XP405", spec(strategy="fsdp(offload=optimizer)"), spec(strategy="fsdp(offload=cpu)"), variant="fsdp"),
    Case("XP406", spec("optimizer sgd", strategy="zero2 offload"), spec("optimizer adamw", strategy="zero2 offload")),
    Case(
        "XP406",
        spec("optimizer adagrad", strategy="zero2 offload"),
        spec(
            "optimizer adagrad",
            extra("deepspeed", "zero_force_ds_cpu_optimizer = false"),
            strategy="zero2 offload",
        ),
        variant="kept",
    ),
    Case(
        "XP406",
        spec("optimizer paged_adamw", strategy="zero2 offload"),
        spec("optimizer lion", strategy="zero2 offload"),
        variant="paged",
    ),
    Case("XP407", spec("optimizer adamw8bit", strategy="fsdp"), spec("optimizer adamw", strategy="fsdp")),
    Case("XP407", spec("optimizer lion", strategy="fsdp"), spec("optimizer lion", strategy="zero2"), variant="lion"),
    Case(
        "XP407",
        spec("target trl-0.18", "optimizer adamw8bit", strategy="fsdp1 offload"),
        spec("target trl-0.18", "optimizer adamw8bit", strategy="fsdp1"),
        variant="offloaded",
    ),
    Case(
        "XP408", spec("nodes 2", strategy="hsdp(shard=3)", **NODES), spec("nodes 2", strategy="hsdp(shard=8)", **NODES)
    ),
    Case("XP408", spec(strategy="hsdp"), spec("nodes 2", strategy="hsdp", **NODES), variant="one-group"),
    Case("XP408", spec(strategy="hsdp(shard=1)"), spec(strategy="hsdp(shard=2)"), variant="no-shard"),
    Case("XP409", spec("target trl-0.18", strategy="fsdp"), spec("target trl-0.18", strategy="fsdp1")),
    Case(
        "XP488",
        spec("target trl-0.24", strategy="zero2", batch="gbs=256 micro=16 seq=512"),
        spec("target trl-0.24", strategy="zero1", batch="gbs=256 micro=16 seq=512"),
    ),
    Case(
        "XP940",
        spec("target trl-0.24", strategy="zero2(overlap_comm=true)"),
        spec("target trl-0.24", strategy="zero2(overlap_comm=false)"),
    ),
    Case("XP410", spec(strategy="fsdp1"), spec(strategy="fsdp")),
    Case(
        "XP411",
        spec(strategy="fsdp(state_dict=sharded)", save='save "out/run" full_state=false resume=never'),
        spec(strategy="fsdp(state_dict=full)", save='save "out/run" full_state=false resume=never'),
    ),
    Case(
        "XP413",
        spec(
            'model(config=file("config.json"))',
            "memory(checkpointing)",
            train="jetmoe/jetmoe-8b on infinity-instruct for 3 epochs",
        ),
        spec('model(config=file("config.json"))', train="jetmoe/jetmoe-8b on infinity-instruct for 3 epochs"),
        JETMOE,
    ),
)

TRL: tuple[Case, ...] = (
    Case(
        "XP420",
        spec(
            extra("trl", "ddp_find_unused_parameters = true"), "memory(checkpointing(reentrant=true))", strategy="ddp"
        ),
        spec(
            extra("trl", "ddp_find_unused_parameters = true"), "memory(checkpointing(reentrant=false))", strategy="ddp"
        ),
    ),
    Case(
        "XP421",
        spec(*BEST, strategy="zero2", save=WEIGHTS_ONLY),
        spec(*BEST, strategy="zero2", save='save "out/run" every=100'),
    ),
    Case(
        "XP422",
        spec(extra("trl", "auto_find_batch_size = true"), strategy="zero3"),
        spec(extra("trl", "auto_find_batch_size = false"), strategy="zero3"),
    ),
    *(
        Case(
            "XP120",
            spec(extra("trl", f"fsdp = {value}"), strategy=strategy),
            spec(strategy=accepted),
            variant=name,
        )
        for name, value, strategy, accepted in (
            ("fsdp-and-deepspeed", '"full_shard"', "zero2", "zero2"),
            ("fsdp-hybrid", '"hybrid_shard"', "fsdp", "fsdp"),
            ("fsdp-list", '["full_shard", "auto_wrap"]', "fsdp", "full_shard"),
            ("fsdp-unknown", '"fully_shard"', "fsdp", "fsdp"),
        )
    ),
    Case(
        "XP120",
        on_cpu(extra("trl", "use_cpu = true"), strategy="zero2"),
        on_cpu(strategy="zero2"),
        variant="zero-on-cpu",
    ),
    Case("XP120", spec(extra("trl", 'ddp_backend = "mpi"'), strategy="ddp"), spec(strategy="ddp"), variant="backend"),
)

ACCELERATE: tuple[Case, ...] = (
    Case(
        "XP430",
        spec(extra("accelerate", "fsdp_min_num_params = 100M"), strategy="zero2"),
        spec(extra("accelerate", "debug = true"), strategy="zero2"),
    ),
    Case(
        "XP430",
        spec(extra("accelerate", "debug = true"), "launch local(launcher=torchrun)"),
        spec(extra("accelerate", "debug = true")),
        variant="torchrun",
    ),
    Case(
        "XP431",
        spec(extra("accelerate", "fsdp_activation_checkpointing_offload = true"), strategy="fsdp"),
        spec(extra("accelerate", "fsdp_activation_checkpointing_offload = false"), strategy="fsdp"),
    ),
    Case(
        "XP432",
        spec(extra("accelerate", "fsdp_forward_prefetch = true"), strategy="fsdp"),
        spec(extra("accelerate", "fsdp_forward_prefetch = false"), strategy="fsdp"),
    ),
    Case(
        "XP432",
        spec(extra("accelerate", 'fsdp_backward_prefetch = "BACKWARD_POST"'), strategy="fsdp"),
        spec(extra("accelerate", 'fsdp_backward_prefetch = "BACKWARD_POST"'), "target trl-0.18", strategy="fsdp1"),
        variant="obsolete",
    ),
    Case(
        "XP433",
        spec(extra("accelerate", "fsdp_sync_module_states = false"), "target trl-0.18", strategy="fsdp1"),
        spec(
            extra("accelerate", "fsdp_sync_module_states = false", "fsdp_cpu_ram_efficient_loading = false"),
            "target trl-0.18",
            strategy="fsdp1",
        ),
    ),
    Case(
        "XP434",
        spec(extra("accelerate", 'fsdp_transformer_layer_cls_to_wrap = "LlamaDecoderLayer"'), strategy="fsdp"),
        spec(extra("accelerate", 'fsdp_transformer_layer_cls_to_wrap = "Qwen2DecoderLayer"'), strategy="fsdp"),
    ),
    Case(
        "XP434",
        spec(extra("accelerate", 'fsdp_transformer_layer_cls_to_wrap = "Qwen2Decoderlayer"'), strategy="fsdp"),
        spec(extra("accelerate", 'fsdp_transformer_layer_cls_to_wrap = "Qwen2MLP"'), strategy="fsdp"),
        variant="misspelt",
    ),
    Case(
        "XP435",
        spec(extra("accelerate", BY_SIZE, "fsdp_min_num_params = 0"), strategy="fsdp"),
        spec(extra("accelerate", 'fsdp_auto_wrap_policy = "TRANSFORMER_BASED_WRAP"'), strategy="fsdp"),
        variant="size-0",
    ),
    Case(
        "XP435",
        spec(extra("accelerate", BY_SIZE, "fsdp_min_num_params = 100M"), strategy="fsdp"),
        spec(extra("accelerate", BY_SIZE, "fsdp_min_num_params = 100M"), strategy="fsdp1"),
        variant="fsdp2",
    ),
    Case(
        "XP435",
        spec(extra("accelerate", "fsdp_min_num_params = 100M"), strategy="fsdp"),
        spec(extra("accelerate", BY_SIZE, "fsdp_min_num_params = 100M"), "target trl-0.18", strategy="fsdp1"),
    ),
    Case(
        "XP436", spec(extra("accelerate", 'tpu_name = "pod"')), spec(extra("accelerate", "enable_cpu_affinity = true"))
    ),
    *(
        Case("XP120", spec(extra("accelerate", line), strategy=strategy), spec(strategy=strategy), variant=name)
        for name, line, strategy in (
            ("sharding-strategy", 'fsdp_sharding_strategy = "HYBRID_SHARD"', "fsdp"),
            ("beside-deepspeed", 'mixed_precision = "bf16"', "zero2"),
            ("gpu-ids", 'gpu_ids = "0"', "ddp"),
            ("num-processes", "num_processes = -1", "ddp"),
        )
    ),
    *(
        Case(
            code,
            spec(extra("accelerate", line), strategy="fsdp"),
            spec(extra("accelerate", right), strategy="fsdp"),
            variant=name,
        )
        for code, name, line, right in (
            ("XP104", "wrap-policy", 'fsdp_auto_wrap_policy = "LAYERS"', 'fsdp_auto_wrap_policy = "NO_WRAP"'),
            ("XP121", "fsdp-key", "fsdp_cpu_offload = true", "fsdp_cpu_ram_efficient_loading = true"),
            ("XP121", "fsdp-typo", "fsdp_cpu_ram_eficient_loading = true", "fsdp_cpu_ram_efficient_loading = true"),
            ("XP121", "accelerate-key", "num_proceses = 8", "debug = true"),
        )
    ),
)

CHOICES: tuple[Case, ...] = (
    Case(
        "XP106",
        spec(strategy="fsdp(state_dict=local)"),
        spec(strategy="fsdp(state_dict=sharded)"),
        variant="local-state",
    ),
    Case("XP104", spec(strategy='fsdp(reshard="FULL_SHARD")'), spec(strategy="fsdp(reshard=true)"), variant="reshard"),
    Case("XP106", spec(strategy="zero4"), spec(strategy="zero3"), variant="zero4"),
    Case("XP106", spec("optimizer muon"), spec("optimizer adamw"), variant="muon"),
    Case("XP106", spec(precision="bfloat16"), spec(precision="bf16"), variant="bfloat16"),
)

LAUNCH: tuple[Case, ...] = (
    Case("XP802", spec("launch local(launcher=torchrun)", strategy="fsdp"), spec("launch local(launcher=torchrun)")),
    Case(
        "XP801",
        spec(hardware="8 x v100-32gb", precision="fp16"),
        spec(hardware="8 x t4", strategy="zero3", precision="fp16"),
    ),
    Case(
        "XP803",
        spec("data(workers=1)", "launch local(nccl_timeout=60s)"),
        spec("data(workers=8)", "launch local(nccl_timeout=60s)"),
    ),
    Case("XP893", spec("launch local(rendezvous=c10d)"), spec("nodes 2", "launch local(rendezvous=c10d)", **NODES)),
)

PAIRS = "qwen2.5-3b on ultrafeedback-binarized for 3 epochs"
PAIR = {"hardware": "2 x h100-80gb"}
BASE = "qwen2.5-7b on infinity-instruct for 3 epochs"
LARGE = {"train": "llama-3.1-70b-instruct on infinity-instruct for 3 epochs", "batch": "gbs=128 micro=1"}
SEVEN = {"train": BASE, "batch": "gbs=16 micro=1", "precision": "fp32"}
ADAPTED = {"train": LARGE["train"], "batch": "gbs=16 micro=1"}
MEMORY: tuple[Case, ...] = (
    Case("XP480", spec(hardware="16 x a100-80gb", strategy="ddp", **LARGE),
         spec(hardware="16 x a100-80gb", strategy="zero3", **LARGE)),
    Case("XP480", spec(hardware="1 x t4", strategy="ddp", **SEVEN),
         spec(hardware="1 x t4", strategy="zero3(offload=cpu)", **SEVEN), variant="one-card"),
    Case("XP480", spec("lora", hardware="1 x l4", strategy="ddp", **ADAPTED),
         spec("qlora", hardware="1 x a100-80gb", strategy="ddp", **ADAPTED), variant="adapters"),
    Case("XP960", spec(batch="gbs=128 micro=16 seq=16Ki", train=BASE),
         spec(batch="gbs=128 micro=4 seq=16Ki", train=BASE)),
    Case("XP960", spec("memory(checkpointing=false)"), spec("memory(checkpointing=true)"), variant="kept"),
    Case("XP960", spec("target trl-0.18", "method orpo", train=PAIRS, batch="gbs=256 micro=32"),
         spec("target trl-0.18", "method orpo", train=PAIRS, batch="gbs=256 micro=8"), variant="logits"),
    Case("XP960", spec("lora", batch="gbs=256 accum=4 micro=8 seq=32Ki", train=BASE),
         spec("lora", batch="gbs=256 accum=16 micro=2 seq=32Ki", train=BASE), variant="accumulation"),
    Case("XP961", spec(batch="micro=4 seq=4Ki", train=BASE, **PAIR),
         spec(strategy="zero2(offload=optimizer)", batch="micro=4 seq=4Ki", train=BASE, **PAIR), variant="states"),
    Case("XP961", spec("memory(checkpointing=false)", batch="gbs=128 micro=8 seq=1536"),
         spec("memory(checkpointing=false)", batch="gbs=128 micro=4 seq=1536")),
)  # fmt: skip

ROUTED = {"train": "mixtral-8x7b-v0.1 on ultrafeedback-binarized for 1 epochs", "hardware": "16 x h200-141gb",
          "strategy": "zero3", "batch": "gbs=16 micro=1"}  # fmt: skip
"""A mixture that needs shards of its weights."""
FROZEN = "freeze(except_last=2, layer_modules=[mlp])"
EXPERTS: tuple[Case, ...] = (
    Case(
        "XP571",
        on_cpu(zero("zero_quantized_weights = true"), strategy="zero3"),
        on_cpu(zero("zero_quantized_weights = false"), strategy="zero3"),
    ),
    Case(
        "XP572",
        spec(FROZEN, "memory(checkpointing(reentrant=false))", "target trl-0.18", strategy="zero3"),
        spec(FROZEN, "target trl-0.18", strategy="zero3"),
    ),
    Case(
        "XP572",
        spec("lora", "memory(checkpointing(reentrant=false))", "target trl-0.24", strategy="zero3"),
        spec("lora", "target trl-0.24", strategy="zero3"),
        variant="adapters",
    ),
    Case(
        "XP572",
        spec(FROZEN, "method reward", "memory(checkpointing)", "target trl-0.18", strategy="zero3", train=PAIRS),
        spec(FROZEN, "method reward", "target trl-0.18", strategy="zero3", train=PAIRS),
        variant="twice",
    ),
    Case(
        "XP574",
        spec(FROZEN, train="opt-125m on alpaca for 1 epochs"),
        spec("freeze(except_last=2, layer_modules=[fc1, fc2])", train="opt-125m on alpaca for 1 epochs"),
    ),
    Case(
        "XP574",
        spec("freeze(except_last=2, except_modules=[norm])", train="opt-125m on alpaca for 1 epochs"),
        spec("freeze(except_last=2, except_modules=[final_layer_norm])", train="opt-125m on alpaca for 1 epochs"),
        variant="outside",
    ),
    Case(
        "XP574",
        spec('freeze(except_last=2, except_parameters=["^lm_head.weight$"])', "method reward", train=PAIRS),
        spec("freeze(except_last=2)", "method reward", train=PAIRS),
        variant="reward",
    ),
    Case(
        "XP573",
        spec("lora", "model(dtype=bf16)", strategy="zero3", precision="fp32"),
        spec("lora", "model(dtype=fp32)", strategy="zero3", precision="fp32"),
    ),
    Case(
        "XP576",
        spec("lora", "model(dtype=bf16)", "method reward", precision="fp32", train=PAIRS),
        spec("lora", "model(dtype=bf16)", "method reward", strategy="ddp", precision="fp32", train=PAIRS),
    ),
    Case(
        "XP577",
        spec("method kto(precompute)", "qlora", "target trl-0.24", train=PAIRS),
        spec("method kto(precompute)", "lora", "target trl-0.24", train=PAIRS),
    ),
    Case(
        "XP570",
        spec("method dpo", "target trl-0.18", **ROUTED),
        spec("method dpo", "lora", "target trl-0.18", **ROUTED),
    ),
)

CASES: tuple[Case, ...] = (*EXPERTS, *MEMORY, *SHARDING, *TRL, *ACCELERATE, *CHOICES, *LAUNCH)
