"""Launchers, nodes and wheels (XP80x)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import known_rows

FASTEST = 2000
"""Rows that one process renders and tokenizes in a second, at best: 550 of 620 tokens were measured on one core."""


@rule("XP801", "wheels-without-volta", "warning")
def wheels_without_volta(spec: Spec) -> Iterator[Finding]:
    """From torch 2.11 on only the CUDA 12.6 wheels carry kernels for compute capability 7.0 (V100).

    The default wheels install and then fail with "no kernel image is available". Source: torch release notes.
    """
    gpu, wheels = spec.hardware.gpu, spec.stack.facts.volta_wheels
    if gpu is not None and gpu.capability < (7, 5) and wheels:
        torch = spec.stack.pins["torch"]
        yield Finding(
            spec.place("hardware", f"compute capability {gpu.compute_capability}"),
            f"the default wheels of torch {torch} have no kernels for {gpu.name}",
            f"install torch {torch} from its {wheels} wheels; the preflight checks it",
        )


@rule("XP802", "torchrun-without-the-yaml")
def torchrun_without_yaml(spec: Spec) -> Iterator[Finding]:
    """FSDP is described in accelerate.yaml, which `accelerate launch` reads and torchrun does not; so are the groups of
    processes that share a sequence.

    Started by torchrun the run would be plain DDP; the runtime stops it, after every process has loaded torch.
    Source: accelerate 1.15 `commands/launch.py` (the file becomes environment variables).
    """
    if spec.text("launch.launcher") == "torchrun" and (spec.sharded_by_fsdp or spec.ulysses):
        yield Finding(
            spec.place("launch.launcher", "does not read accelerate.yaml"),
            f"{spec.text('strategy')} cannot be started by torchrun",
            write("launcher = accelerate"),
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP803", "timeout-before-the-data", "warning")
def timeout_before_data(spec: Spec) -> Iterator[Finding]:
    """Process 0 renders and tokenizes the data while the others wait, for `nccl_timeout` at most.

    Counted are the rows that are known, at the fastest rate that is plausible, so that a warning is nearly a promise:
    the waiting processes end with a timeout of the collective, after all of that work. Source: transformers 5.23
    `ddp_timeout`, trl 1.16 `sft_trainer.py` (`main_process_first`); executed: 550 rows a second.
    """
    rows = known_rows(spec.data)
    workers, timeout = spec.get("data.workers"), spec.integer("launch.nccl_timeout")
    seconds = rows / FASTEST / (workers if isinstance(workers, int) else 1)
    if spec.hardware.world > 1 and seconds > timeout:
        longer = -(-int(4 * seconds) // 3600)
        yield Finding(
            spec.place("launch.nccl_timeout", f"{rows:,.0f} rows take {seconds:,.0f} s at {FASTEST:,} a second"),
            f"processes that wait {timeout} s would not see the data",
            f"write `nccl_timeout = {longer}h`, or more `workers` in `data`",
            (spec.data[0].label,),
            f"nccl_timeout = {longer}h" if spec.written("launch.nccl_timeout") else None,
        )


@rule("XP893", "rendezvous-of-one-node", "warning")
def rendezvous_of_one_node(spec: Spec) -> Iterator[Finding]:
    """`rendezvous` says how the launchers of several nodes find each other; one node's launcher has no other to find.

    Source: accelerate 1.15 `utils/launch.py` (the endpoint is set for several machines only); torch 2.13
    `distributed/run.py` (`--standalone`).
    """
    if spec.integer("nodes") == 1 and spec.text("launch.rendezvous") != "static":
        yield Finding(
            spec.place("launch.rendezvous", "one node meets nobody"),
            "`rendezvous` changes nothing on one node",
            "leave it out, or write `rendezvous = static`; `nodes` says how many machines there are",
            (spec.label("nodes"),),
            "rendezvous = static",
        )
