"""Cases of sharding, launchers and nodes (XP40x to XP44x, XP49x, XP80x to XP84x)."""

from __future__ import annotations

from case_support import Case, on_cpu, spec

CASES: tuple[Case, ...] = (
    Case("XP401", spec(strategy="fsdp(activation_checkpointing)"), spec("memory(checkpointing)", strategy="fsdp")),
    Case("XP402", on_cpu(strategy="fsdp"), on_cpu(strategy="zero3")),
    Case("XP403", spec(hardware="1 x h100-80gb", strategy="fsdp"), spec(hardware="2 x h100-80gb", strategy="fsdp")),
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
    Case("XP407", spec("optimizer adamw8bit", strategy="fsdp"), spec("optimizer adamw", strategy="fsdp")),
    Case(
        "XP408",
        spec("nodes 2", strategy="hsdp(shard=3)", batch="gbs=128 micro=8"),
        spec("nodes 2", strategy="hsdp(shard=8)", batch="gbs=128 micro=8"),
    ),
    Case(
        "XP408", spec(strategy="hsdp"), spec("nodes 2", strategy="hsdp", batch="gbs=128 micro=8"), variant="one-group"
    ),
    Case("XP409", spec("target trl-0.18", strategy="fsdp"), spec("target trl-0.18", strategy="fsdp1")),
    Case("XP410", spec(strategy="fsdp1"), spec(strategy="fsdp")),
    Case(
        "XP411",
        spec(strategy="fsdp(state_dict=sharded)", save='save "out/run" full_state=false resume=never'),
        spec(strategy="fsdp(state_dict=full)", save='save "out/run" full_state=false resume=never'),
    ),
    Case("XP802", spec("launch local(launcher=torchrun)", strategy="fsdp"), spec("launch local(launcher=torchrun)")),
    Case("XP801", spec(hardware="8 x v100-32gb", precision="fp16"), spec(hardware="8 x t4", precision="fp16")),
)
