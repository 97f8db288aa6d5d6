"""`launch sky`: `sky.yaml`, a SkyPilot task on rented machines."""

from __future__ import annotations

from xpc.compiler.engines.containers import FOLDER
from xpc.compiler.engines.engine import MEMBERS, Engine, quoted
from xpc.compiler.spec import Spec


class SkyPilot(Engine):
    """The engine for SkyPilot 0.12 or newer."""

    submission = (
        "secret", "secret-file", "env", "env-file", "num-nodes", "gpus", "name", "workdir", "image-id", "cpus",
        "memory", "entrypoint",
    )  # fmt: skip
    volume = "a volume of SkyPilot"
    mounted = FOLDER

    def files(self, spec: Spec, pin: str) -> dict[str, str]:
        """The file `sky.yaml`."""
        from xpc.compiler.engines.sky.task import files

        return files(spec, pin)

    def readme(self, spec: Spec) -> list[str]:
        """Lines of README.md on how to submit the task."""
        from xpc.compiler.engines.sky.task import submit

        return ["", "With SkyPilot, submit a managed job in this folder, which is copied to every node:", "", "```",
                submit(spec), "```"]  # fmt: skip

    def command(self, spec: Spec, out: str) -> str:
        """The command that submits the task. The user runs it in the bundle's folder."""
        from xpc.compiler.engines.sky.task import submit

        return f"cd -- {quoted(out)} && {submit(spec)}"

    def sweep_command(self, spec: Spec, out: str) -> str:
        """Commands that submit each member's task from the member's folder."""
        from xpc.compiler.engines.sky.task import submit

        members = quoted(out, MEMBERS)
        return f'for member in {members}/*; do (cd -- "$member" && {submit(spec)}); done'


ENGINE = SkyPilot()
