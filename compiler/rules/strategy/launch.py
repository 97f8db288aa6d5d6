"""Rules about launchers, the GPUs of a node, several nodes, and the CUDA version of torch's wheels (XP657, XP801 to
XP804, XP893).
"""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.rules.core.rule import Finding, rule, write
from xpc.compiler.spec import Spec
from xpc.compiler.spec.resources import known_rows

FASTEST = 2000
"""Process 0 can render and tokenize at most about this many rows per second. In a measurement, one core processed 550
rows of 620 tokens in a second.
"""


@rule("XP801", "wheels-without-volta", "warning")
def wheels_without_volta(spec: Spec) -> Iterator[Finding]:
    """From torch 2.11 on, a GPU of compute capability 7.0 (V100) needs torch's CUDA 12.6 wheels.

    Why it is bad: from torch 2.11 on, the wheels for CUDA versions other than 12.6 have no kernels for a V100.

    Without this rule: the default wheels can be installed, but then fail with "no kernel image is available".

    Source: torch's release notes.
    """
    gpu, wheels = spec.hardware.gpu, spec.stack.facts.volta_wheels
    if gpu is not None and gpu.capability < (7, 5) and wheels:
        torch = spec.stack.pins["torch"]
        yield Finding(
            spec.location("hardware", f"compute capability {gpu.compute_capability}"),
            f"the default wheels of torch {torch} have no kernels for {gpu.name}",
            f"install torch {torch} from its {wheels} wheels; the preflight checks it",
        )


MOST_GPUS = 16
"""A machine usually has at most this many GPUs; DGX-2 and Google's a2-megagpu have 16."""
MACHINES = {
    "a100-80gb": 8, "a800-80gb": 8, "h100-80gb": 8, "h800-80gb": 8, "h200": 8, "h20": 8, "b200": 8, "gb200": 4,
    "gh200-96gb": 4,
}  # fmt: skip
"""Maps a GPU that is sold only on boards of up to 8 GPUs to the largest number of such GPUs in a machine."""


@rule("XP804", "more-gpus-than-a-machine", "warning")
def more_than_a_machine(spec: Spec) -> Iterator[Finding]:
    """`hardware` should state the number of GPUs of one node, not of all nodes. So `hardware 64 x h100-80gb` needs a
    machine with 64 GPUs; eight machines with eight GPUs each are `hardware 8 x h100-80gb` and `nodes 8`.

    Why it is bad: no machine has so many GPUs, so the number is probably that of all GPUs of all nodes.

    Without this rule: "CUDA error: invalid device ordinal" on a machine with fewer GPUs. A scheduler refuses the job,
    or the job waits forever.

    Source: data sheets of NVIDIA's HGX and DGX machines, GB200 NVL72 (four GPUs in a compute tray) and DGX-2.
    """
    gpu, count = spec.hardware.gpu, spec.hardware.processes
    most = MOST_GPUS if gpu is None else MACHINES.get(gpu.name, MOST_GPUS)
    if gpu is None or count <= most:
        return
    nodes = count // most
    if count % most or spec.hardware.nodes > 1:
        typed = f"write `hardware {most} x {gpu.name}`, and the number of machines as `nodes`"
    else:
        typed = f"write `hardware {most} x {gpu.name}` and `nodes {nodes}`"
    yield Finding(
        spec.location("hardware", f"a machine has at most {most} of them"),
        f"no machine has {count} {gpu.name}",
        typed,
        (spec.label("nodes"),) if spec.hardware.nodes > 1 else (),
    )


@rule("XP802", "torchrun-without-the-yaml")
def torchrun_without_yaml(spec: Spec) -> Iterator[Finding]:
    """A run with FSDP, or with context parallelism, must be started by `accelerate launch` and not by torchrun.

    Why it is bad: FSDP and context parallelism are configured in accelerate.yaml. torchrun does not read this file, so
    the run would use plain DDP.

    Without this rule: the runtime stops the run, after every process has loaded torch.

    Source: accelerate 1.15 `commands/launch.py`, which turns accelerate.yaml into environment variables.
    """
    if spec.text("launch.launcher") == "torchrun" and (spec.sharded_by_fsdp or spec.ulysses):
        yield Finding(
            spec.location("launch.launcher", "does not read accelerate.yaml"),
            f"{spec.text('strategy')} cannot be started by torchrun",
            write("launcher = accelerate"),
            (spec.label("strategy", "the strategy"),),
        )


@rule("XP803", "timeout-before-the-data", "warning")
def timeout_before_data(spec: Spec) -> Iterator[Finding]:
    """`nccl_timeout` must be longer than the time in which process 0 renders and tokenizes the data. xpc uses a lower
    bound of this time: it counts only sources whose number of rows is known, and assumes the fastest plausible rate.

    Why it is bad: the other processes wait for process 0, for at most `nccl_timeout`.

    Without this rule: the waiting processes end with a timeout of the collective operation, after process 0 has done
    all its work.

    Source: transformers 5.23 `ddp_timeout`, trl 1.16 `sft_trainer.py` (`main_process_first`); confirmed by running it:
    one core processed 550 rows a second.
    """
    rows = known_rows(spec.data)
    workers, timeout = spec.get("data.workers"), spec.integer("launch.nccl_timeout")
    seconds = rows / FASTEST / (workers if isinstance(workers, int) else 1)
    if spec.hardware.world > 1 and seconds > timeout and not spec.flag("data.streaming"):
        longer = -(-int(4 * seconds) // 3600)
        yield Finding(
            spec.location("launch.nccl_timeout", f"{rows:,.0f} rows take {seconds:,.0f} s at {FASTEST:,} a second"),
            f"processes wait at most {timeout} s for the data, which takes longer to prepare",
            f"write `nccl_timeout = {longer}h`, or more `workers` in `data`",
            (spec.data[0].label,),
            f"nccl_timeout = {longer}h" if spec.written("launch.nccl_timeout") else None,
        )


SHORTEST_WAIT = 60


@rule("XP657", "timeout-of-seconds", "warning")
def timeout_of_seconds(spec: Spec) -> Iterator[Finding]:
    """`nccl_timeout` should be at least a minute if several processes train, and so should the `timeout` of a vLLM
    server.

    Why it is bad: all processes wait while one of them loads a model, writes a checkpoint or evaluates, and each of
    these can take longer than a few seconds. A vLLM server loads a model, too, before it answers.

    Without this rule: the first time that a process waits for the others longer than the timeout, a collective
    operation fails, and so does the run. If the timeout of a server is too short, the run fails with ConnectionError.

    Source: torch 2.13 `distributed_c10d.py`; transformers 5.23 `ddp_timeout`; trl 1.16 `vllm_client.py`.
    """
    timeout = spec.integer("launch.nccl_timeout")
    if spec.hardware.world > 1 and timeout < SHORTEST_WAIT and spec.written("launch.nccl_timeout"):
        yield Finding(
            spec.location("launch.nccl_timeout"),
            f"processes wait only {timeout} s for each other",
            write("nccl_timeout = 30m"),
        )
    waits = spec.get("method.vllm.timeout")
    if isinstance(waits, int | float) and waits < SHORTEST_WAIT and spec.written("method.vllm.timeout"):
        yield Finding(
            spec.location("method.vllm.timeout"),
            f"the run waits only {waits:g} s for its vLLM server",
            write("timeout = 240s"),
        )


@rule("XP893", "rendezvous-of-one-node", "warning")
def rendezvous_of_one_node(spec: Spec) -> Iterator[Finding]:
    """`rendezvous` needs several nodes.

    Why it is bad: `rendezvous` says how the launchers of several nodes find each other, so it changes nothing on one
    node.

    Without this rule: nothing is reported. accelerate passes the setting on only if there are several machines.

    Source: accelerate 1.15 `utils/launch.py`; torch 2.13 `distributed/run.py` (`--standalone`).
    """
    if spec.integer("nodes") == 1 and spec.text("launch.rendezvous") != "static":
        yield Finding(
            spec.location("launch.rendezvous", "for several nodes"),
            "`rendezvous` changes nothing on one node",
            "leave `rendezvous` out, or write `rendezvous = static`; `nodes` sets the number of machines",
            (spec.label("nodes"),),
            "rendezvous = static",
        )
