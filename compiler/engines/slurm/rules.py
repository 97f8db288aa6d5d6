"""Jobs of Slurm (XP85x)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xpc.compiler.engines.restarts import grace
from xpc.compiler.language.setting import TextPath
from xpc.compiler.rules.conditions import chosen
from xpc.compiler.rules.rule import Finding, rule, write
from xpc.compiler.spec import Spec

WHEN = chosen("launch", "slurm")

MARKS: Mapping[TextPath, str] = {
    "launch.partition": "._+-,",
    "launch.account": "._+-@",
    "launch.qos": "._+-",
    "launch.constraint": "._+-,&|*[]()",
}
"""What the names may hold beside letters and digits."""
SHORTEST = 120
"""Seconds: a signal a minute before the limit, which Slurm may send up to a minute before that."""


@rule("XP850", "not-a-slurm-name")
def names(spec: Spec) -> Iterator[Finding]:
    """Partitions and accounts stand in `#SBATCH` lines, which sbatch reads before any shell, and word by word.

    A space ends the option there, `#` the line, and a quote takes what follows with it. Today: sbatch refuses the job
    or reads another option than was meant. Source: Slurm 22.05 `sbatch` (`_get_next_opt_line`); executed.
    """
    for path, marks in MARKS.items():
        name, text = path.rpartition(".")[2], spec.get(path)
        if text is None:
            continue
        wrong = next((c for c in text if not (c.isascii() and (c.isalnum() or c in marks))), None)
        if wrong is None and text and (text[0].isalnum() or text[0] in "[(") and text[-1] not in ",&|":
            continue
        kept = "".join(c if c.isascii() and (c.isalnum() or c in marks) else "-" for c in text).strip(marks)
        legal = f'{name} = "{kept or "main"}"'
        yield Finding(
            spec.place(path, "begins or ends with a mark" if wrong is None else f"{wrong!r} is not of a name"),
            f"Slurm has no {name} of this name",
            write(legal),
        )


@rule("XP851", "time-before-a-checkpoint", "warning")
def time_for_a_checkpoint(spec: Spec) -> Iterator[Finding]:
    """The job is asked to stop some minutes before its limit, to finish the step and to save a checkpoint.

    Of a `time` that is hardly longer, half goes to that; a requeued job may then start again and again and come no
    further. Below two minutes nothing is left: Slurm counts minutes, and may send the signal one earlier than asked.
    Source: `man sbatch` of Slurm 22.05 (`--signal`, `--time`).
    """
    time, needed = spec.get("launch.time"), grace(spec)
    if not isinstance(time, int) or time >= 2 * needed:
        return
    longer = -(-4 * needed // 60)
    short = time < SHORTEST
    yield Finding(
        spec.place("launch.time", f"{time} s, and {needed} s may go to the last checkpoint"),
        "the limit leaves no time to train" if short else "the limit leaves little time to train",
        write(f"time = {longer}m", ", or more"),
        severity="error" if short else None,
    )


@rule("XP852", "server-node-without-gpu", "warning")
def server_without_gpu(spec: Spec) -> Iterator[Finding]:
    """The vLLM server gets a node like those that train, and vLLM's wheels generate on GPUs.

    Today: the server ends when it looks for one, and the job with it. Source: vllm's published wheels.
    """
    if spec.on_cpu and spec.asks_server:
        yield Finding(
            spec.place("method.vllm.mode", "on a node like those that train"),
            "the job would have no GPU for the vLLM server",
            "leave `vllm` out: transformers generates",
            (spec.label("hardware", "no GPU"),),
        )
