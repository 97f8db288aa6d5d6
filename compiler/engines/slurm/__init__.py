"""`launch slurm`: `job.sbatch`, a job of Slurm with a task a node; of a sweep, an array with a task a member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from xpc.compiler.engines.engine import MEMBERS, Engine, quoted
from xpc.compiler.spec import Spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from xpc.grammar.diagnostic import Diagnostic, Label

JOB = "job.sbatch"
RUNS = "runs.sha256"
"""Of a sweep: a line for each member, in the order of the array."""
README = f"""
On a Slurm cluster the same is one job; it is submitted in the folder that the output goes to, with the
environment of the run activated (or named by PYTHON), and writes its log there:

```
sbatch {JOB}
```
"""
SERVER = """
One node more than the run has starts the vLLM server, and the job sets XPC_VLLM_HOST. XPC_VLLM names the
server's program where it has an environment of its own; XPC_SERVER_WAIT is the longest wait in seconds.
"""
LARGEST_ARRAY = 1001
"""Tasks of an array where slurm.conf does not set MaxArraySize (slurm.conf(5): 1001, for indices below it)."""


class Slurm(Engine):
    """Slurm, 22.05 or newer."""

    def files(self, spec: Spec, pin: str) -> dict[str, str]:
        """The job of one run."""
        from xpc.compiler.engines.slurm.job import script

        return {JOB: script(spec, spec.name, pin)}

    def readme(self, spec: Spec) -> list[str]:
        """How the job is handed to Slurm."""
        return (README + (SERVER if spec.asks_server else "")).splitlines()

    def command(self, spec: Spec, out: str) -> str:
        """The job's own `sbatch`."""
        return f"sbatch {quoted(out, JOB)}"

    def sweep_files(self, members: Sequence[Spec], name: str, pins: Mapping[str, str]) -> dict[str, str]:
        """One array for all members, with the longest time to stop, and the list of what they run."""
        from xpc.compiler.engines.pin import pin
        from xpc.compiler.engines.restarts import grace
        from xpc.compiler.engines.slurm.job import script

        runs = "".join(f"{one}  {MEMBERS}/{member}/run.sha256\n" for member, one in pins.items())
        job = script(max(members, key=grace), name, pin(runs.encode("utf-8", "surrogatepass")), len(members))
        return {RUNS: runs, JOB: job}

    def sweep_readme(self, members: Sequence[str]) -> list[tuple[str, str]]:
        """The array, or part of it."""
        return [
            (f"sbatch {JOB}", "all members, one task of an array each"),
            (f"sbatch --array=0-{len(members) - 1}%8 {JOB}", "all, at most 8 at a time"),
            (f"sbatch --array=0 {JOB}", "the first one; members.txt has them in order, from 0"),
            (f"sbatch {MEMBERS}/{members[0]}/{JOB}", "the same, as a job of its own"),
        ]

    def sweep_command(self, spec: Spec, out: str) -> str:
        """The array, which is submitted as a job is."""
        return self.command(spec, out)

    def sweep_faults(self, members: Sequence[Spec], machines: Label, sweep: Label) -> Iterator[Diagnostic]:
        """An array has one shape, and a largest index."""
        from xpc.compiler.engines.restarts import requeues
        from xpc.compiler.language.codes import report
        from xpc.grammar.record import evolve

        shapes = {(one.hardware.nodes, one.text("hardware"), one.asks_server, requeues(one)) for one in members}
        if len(shapes) > 1:
            yield report(
                "XP887",
                "the members ask for different machines, and an array of Slurm has one shape",
                evolve(machines, text=f"{len(shapes)} shapes"),
                help="write one spec for each shape; with `extends` they share the rest",
            )
        elif len(members) > LARGEST_ARRAY:
            yield report(
                "XP888",
                f"an array of {len(members):,} tasks is more than Slurm takes as it is installed",
                evolve(sweep, text=f"{LARGEST_ARRAY:,} tasks, unless slurm.conf sets `MaxArraySize`"),
                help=f"ask for `MaxArraySize={len(members) + 1}`, or write two sweeps that `extends` one base",
            )


ENGINE = Slurm()
