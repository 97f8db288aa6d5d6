"""Rules about strategies for mixtures of experts whose processes call different experts (XP412, XP570)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.setting import FlagPath
from xpc.compiler.rules.adapters.experts import adapted_paths
from xpc.compiler.rules.core.conditions import routed
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.stacks.modules import EXPERTS, LORA, part, possible

WHEN = routed


def _experts_trained(spec: Spec) -> bool:
    """Whether the run may train experts, completely or by adapters. True if the model's module names are unknown."""
    known = possible(spec.stack.name, spec.model.model_type, spec.model.config)
    inside = {word for path, kinds in known.items() if part(path, kinds) == EXPERTS for word in path.split(".")}
    modules = [*spec.names("lora.modules_to_save"), *spec.names("freeze.layer_modules")]
    named = any(inside.intersection(one.split(".")) for one in modules)
    adapted = any(part(path, LORA) == EXPERTS for path in adapted_paths(spec)) or bool(spec.names("lora.parameters"))
    return named or not inside or (adapted if spec.lora else not spec.names("freeze.layer_modules"))


@rule("XP412", "experts-without-gradient")
def without_gradient(spec: Spec) -> Iterator[Finding]:
    """In some mixtures of experts, a process computes only the experts to which its tokens are routed, and has no
    gradient for the others. ddp with reentrant checkpointing cannot average such gradients, and neither can FSDP2 of
    torch before 2.13, which vLLM needs on trl-0.24. All other strategies can. Adapters that leave the experts frozen
    are not affected.

    Why it is bad: ddp must search for weights without a gradient, but the search cannot be combined with reentrant
    checkpointing (XP420). FSDP2 before torch 2.13 adds the gradients of the processes in the order in which they come,
    so it adds gradients of different experts.

    Without this rule: under ddp, a process waits forever, or RuntimeError in the second step ("Expected to have
    finished reduction"). Under FSDP2, nothing is reported and the experts learn from wrong gradients, or a process
    waits forever.

    Source: torch 2.13 `DistributedDataParallel` (`find_unused_parameters`), `FSDPModule`
    (`set_reduce_scatter_unused_params`, new in 2.13; torch issue 158719); transformers 4.57.6 and 4.52.3
    `modeling_mixtral.py` (`expert_hit`); confirmed by running it.
    """
    if spec.hardware.world < 2 or not _experts_trained(spec):
        return
    message = f"{spec.text('strategy')} cannot average the gradients of {spec.model.model_type}'s experts"
    path: FlagPath = "memory.checkpointing.reentrant"
    if spec.text("strategy") == "ddp" and spec.flag("memory.checkpointing") and spec.flag(path):
        fixed = "write `memory(checkpointing=false)`, or `strategy zero2`"
        yield Finding(
            spec.location(path, "excludes the search for weights without a gradient"),
            f"{message} under reentrant checkpointing",
            fixed if spec.reentrant_after_generation else write("reentrant = false", ", or `strategy zero2`"),
            (spec.label("strategy"), spec.model.label),
        )
    elif spec.sharded_by_fsdp and not spec.by_fsdp1 and spec.flag("method.vllm"):
        torch = spec.stack.requirements(vllm=True)["torch"]
        location = spec.location("strategy", "adds up the gradients that each process has")
        related = (spec.label("method.vllm", f"needs torch {torch}"), spec.model.label)
        yield Finding(location, f"{message} with torch {torch}", "write `strategy zero3`", related)


@rule("XP570", "reference-of-routed-experts", reads=("method.beta", "method.precompute", "method.reference_free"))
def reference_of_experts(spec: Spec) -> Iterator[Finding]:
    """Under ZeRO-3, a run with a reference model cannot train some mixtures of experts: those in which a process
    computes only the experts to which its tokens are routed. Runs with adapters have no separate reference model, so
    they are not affected.

    Why it is bad: processes whose tokens go to different experts gather different weights and wait for each other.
    DeepSpeed can be configured to gather all experts of a layer together, and the bundle does so for the trained model
    (`deepspeed_moe_layer_cls_names`). But TRL gives the reference model a separate DeepSpeed engine without this
    configuration.

    Without this rule: the run hangs, or ends because a process's connection is reset.

    Source: transformers 4.52.3 and 4.57.6 `modeling_mixtral.py` (`expert_hit`), deepspeed `set_z3_leaf_modules`, TRL's
    `prepare_deepspeed`; confirmed by running it.
    """
    if spec.zero_stage != 3 or spec.lora or not spec.method.references(spec.get):
        return
    if (spec.model.model_type or "") in spec.stack.facts.expert_blocks:
        location = spec.location("strategy", "gathers each expert separately")
        yield Finding(
            location,
            f"a reference model of {spec.model.model_type} hangs under ZeRO-3",
            "write `lora`: adapters need no separate reference model",
            (spec.location("method", "compares with a reference model"),),
        )
