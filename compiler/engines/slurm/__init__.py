"""`launch slurm`: `job.sbatch`, a Slurm job with one task per node. A sweep gets an array job, with one element for
each member.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xpc.compiler.engines.engine import MEMBERS, Engine, quoted
from xpc.compiler.engines.restarts import grace, requeues
from xpc.compiler.language.codes import report
from xpc.compiler.spec import Spec
from xpc.grammar.diagnostic import Diagnostic, Label
from xpc.grammar.record import evolve

JOB = "job.sbatch"
RUNS = "runs.sha256"
"""The name of a file with one line for each member of a sweep, in the order of the array's tasks. Each line contains
the digest of the member's bundle.
"""
README = f"""
On a Slurm cluster, submit the run as a job. Do it in the folder for the output and the log. Activate the run's
environment first, or set PYTHON to its interpreter:

```
sbatch {JOB}
```
"""
SERVER = """
The job has one more node, which runs the vLLM server, and sets XPC_VLLM_HOST. XPC_VLLM names the server's program if it
has an environment of its own; XPC_SERVER_WAIT is the maximum wait in seconds.
"""
LARGEST_ARRAY = 1001
"""Slurm's default limit on the number of an array's tasks (`MaxArraySize` in slurm.conf(5))."""


class Slurm(Engine):
    """The engine for Slurm 22.05 or newer."""

    def files(self, spec: Spec, pin: str) -> dict[str, str]:
        """The file `job.sbatch` of one run."""
        from xpc.compiler.engines.slurm.job import script

        return {JOB: script(spec, spec.name, pin)}

    def readme(self, spec: Spec) -> list[str]:
        """Lines of README.md on how to submit the job."""
        return (README + (SERVER if spec.asks_server else "")).splitlines()

    def command(self, spec: Spec, out: str) -> str:
        """The `sbatch` command that submits the file of the job."""
        return f"sbatch {quoted(out, JOB)}"

    def sweep_files(self, members: Sequence[Spec], name: str, pins: Mapping[str, str]) -> dict[str, str]:
        """The script of an array job for all members, and a file with the digests of their bundles. Each member gets as
        much time to stop as the slowest member needs.
        """
        from xpc.compiler.engines.pin import pin
        from xpc.compiler.engines.slurm.job import script

        runs = "".join(f"{one}  {MEMBERS}/{member}/run.sha256\n" for member, one in pins.items())
        job = script(max(members, key=grace), name, pin(runs.encode("utf-8", "surrogatepass")), len(members))
        return {RUNS: runs, JOB: job}

    def sweep_readme(self, members: Sequence[str]) -> list[tuple[str, str]]:
        """The `sbatch` commands that submit all members of the sweep, or only some."""
        return [
            (f"sbatch {JOB}", "all members, each a task of an array"),
            (f"sbatch --array=0-{len(members) - 1}%8 {JOB}", "all, at most 8 at a time"),
            (f"sbatch --array=0 {JOB}", "the first member; members.txt lists all, beginning with member 0"),
            (f"sbatch {MEMBERS}/{members[0]}/{JOB}", "the same, as a separate job"),
        ]

    def sweep_command(self, spec: Spec, out: str) -> str:
        """The `sbatch` command for the array."""
        return self.command(spec, out)

    def sweep_faults(self, members: Sequence[Spec], machines: Label, sweep: Label) -> Iterator[Diagnostic]:
        """Errors of a sweep that cannot be one array job, because its members need different machines, or because it
        has more members than an array may have elements.
        """
        shapes = {(one.hardware.nodes, one.text("hardware"), one.asks_server, requeues(one)) for one in members}
        if len(shapes) > 1:
            message = "the members need different machines, but a Slurm array has the same machines for all its tasks"
            help = "write one spec for each kind of machine; the specs share the rest with `extends`"
            yield report("XP887", message, evolve(machines, text=f"{len(shapes)} kinds of machines"), help=help)
        elif len(members) > LARGEST_ARRAY:
            yield report(
                "XP888",
                f"an array of {len(members):,} tasks is more than Slurm accepts by default",
                evolve(sweep, text=f"{LARGEST_ARRAY:,} tasks, unless slurm.conf sets `MaxArraySize`"),
                help=f"ask the cluster's administrator for `MaxArraySize={len(members) + 1}`, or write two sweeps with "
                "the same `extends`",
            )


ENGINE = Slurm()
