"""Rules about offloading model states to the host's memory (XP405, XP406, XP963)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.language.optimizers import CPU_OPTIMIZERS
from xpc.compiler.rules.core.conditions import not_chosen
from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = not_chosen("strategy.offload", "none")

TORCH_OPTIMIZERS = ("adafactor", "adagrad", "rmsprop", "sgd")
"""Optimizers of torch. They can update parameters on any device, also on the CPU."""


@rule("XP405", "offload-without-sharding")
def offload_without_sharding(spec: Spec) -> Iterator[Finding]:
    """`offload` needs ZeRO or FSDP on GPUs. `offload = optimizer` is refused under FSDP, because FSDP can only offload
    parameters, gradients and optimizer states together.

    Why it is bad: offload moves sharded states to host memory. ddp shards nothing, and on a CPU all states are in host
    memory already.

    Without this rule: under ddp and on a CPU, nothing is offloaded. Under FSDP, parameters and gradients are offloaded
    in addition to the optimizer states.

    Source: deepspeed 0.19.8 `zero/config.py`; accelerate 1.15 `FullyShardedDataParallelPlugin.cpu_offload`.
    """
    where, strategy = spec.text("strategy.offload"), spec.text("strategy")
    location, related = spec.location("strategy.offload"), (spec.label("strategy", "the strategy"),)
    if strategy == "ddp":
        yield Finding(location, "ddp has nothing to offload", "write `strategy zero2` or `strategy fsdp`", related)
    elif spec.on_cpu:
        yield Finding(
            location,
            "on the CPU everything is in host memory already",
            "leave `offload` out",
            (spec.label("hardware", "the hardware"),),
        )
    elif spec.sharded_by_fsdp and where == "optimizer":
        yield Finding(
            location,
            "FSDP does not offload the optimizer alone",
            write("offload = cpu"),
            related,
        )


@rule("XP406", "offload-replaces-the-optimizer")
def offload_replaces_optimizer(spec: Spec) -> Iterator[Finding]:
    """If ZeRO offloads the optimizer, the optimizer must be 32-bit AdamW or 32-bit Lion, because DeepSpeed has CPU
    versions of these two only. With `zero_force_ds_cpu_optimizer = false` in `extra deepspeed`, torch's own optimizers
    are legal, too.

    Why it is bad: accelerate replaces every optimizer other than AdamW and Lion by an Adam without decoupled weight
    decay. It replaces paged_adamw and paged_lion by the same algorithm without paging, so for these two the rule only
    warns.

    Without this rule: for most optimizers, nothing is reported. Adagrad raises TypeError.

    Source: accelerate 1.15 and 1.4 `utils/deepspeed.py` `map_pytorch_optim_to_deepspeed`, `accelerator.py`;
    confirmed by running it.
    """
    name = spec.text("optimizer")
    if not spec.zero_stage or name in CPU_OPTIMIZERS:
        return
    torch = name in TORCH_OPTIMIZERS
    if torch and spec.extra_value("deepspeed", "zero_force_ds_cpu_optimizer") is False:
        return
    keep = ", or `zero_force_ds_cpu_optimizer = false` in `extra deepspeed`" if torch else ""
    related = (spec.label("strategy.offload", "the offload"),)
    if name in ("paged_adamw", "paged_lion"):
        plain = name.removeprefix("paged_")
        yield Finding(
            spec.location("optimizer", f"replaced by DeepSpeedCPU{'Adam' if plain == 'adamw' else 'Lion'}"),
            f"{name} is not paged when it is offloaded",
            f"write `optimizer {plain}`",
            related,
            severity="warning",
        )
    else:
        yield Finding(
            spec.location("optimizer", "replaced by DeepSpeedCPUAdam"),
            f"offload replaces {name} by Adam" if name != "adagrad" else "offload cannot replace adagrad",
            f"write `optimizer adamw`, or leave `offload` out{keep}",
            related,
        )


@rule("XP963", "offload-beyond-the-host", "warning")
def beyond_the_host(spec: Spec) -> Iterator[Finding]:
    """`host_memory`, the memory of a node, must hold the optimizer states that `offload` keeps there. For full training
    with AdamW under ZeRO, these are 12 bytes for each parameter, divided by the number of nodes. Other runs are not
    checked.

    Why it is bad: the optimizer states are allocated before the first step, so the run fails at once.

    Without this rule: the kernel or the scheduler kills the run ("OOM killed"), without a message of Python.

    Source: Rajbhandari et al. 2021, arXiv:2104.07857, section 4.
    """
    given, facts = spec.get("launch.host_memory"), spec.model.facts
    offloads = spec.get("strategy.offload") in ("optimizer", "cpu") and spec.zero_stage
    if not isinstance(given, int) or facts is None or not offloads or spec.lora or spec.flag("freeze"):
        return
    if spec.text("optimizer").startswith("adamw"):
        needs = facts.params * 12 / 2**30 / spec.hardware.nodes
        if needs > given:
            yield Finding(
                spec.location("launch.host_memory", f"{needs:,.0f} GiB of optimizer states on each node"),
                f"the memory of a node cannot hold the states of {spec.model.name} that `offload` keeps there",
                write(f"host_memory = {round(needs * 1.3)}"),
                (spec.label("strategy.offload", "the offload"),),
            )
