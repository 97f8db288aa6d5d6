"""`launch k8s`: `jobset.yaml` and `trainjob.yaml`, one pod per node on Kubernetes."""

from __future__ import annotations

from xpc.compiler.engines.containers import FOLDER
from xpc.compiler.engines.engine import MEMBERS, Engine, quoted
from xpc.compiler.engines.k8s.names import JOBSET, TRAINJOB
from xpc.compiler.spec import Spec


class Kubernetes(Engine):
    """The engine for Kubernetes. The cluster needs JobSet 0.8 or newer, or Kubeflow Trainer 2.2 or newer."""

    volume = "a PersistentVolumeClaim"
    mounted = FOLDER

    def files(self, spec: Spec, pin: str) -> dict[str, str]:
        """The files `jobset.yaml` and `trainjob.yaml`. When a pod starts, it checks that its folder contains the bundle
        with the digest `pin`.
        """
        from xpc.compiler.engines.k8s.manifests import files

        return files(spec, pin)

    def readme(self, spec: Spec) -> list[str]:
        """Lines of README.md that say where to put the bundle, and which of the two files to apply."""
        from xpc.compiler.engines.k8s.manifests import location

        lines = [f"kubectl apply -f {JOBSET}"]
        if not spec.asks_server:
            lines.append(f"kubectl apply -f {TRAINJOB}    # instead, with Kubeflow Trainer")
        where = f"`/opt/{location(spec)}` in the image"
        if spec.get("launch.volume") is not None:
            where = f"`{location(spec)}` on the volume, next to the files that the run reads, or {where}"
        served = (
            ["", "The JobSet's job `vllm` is the vLLM server, and XPC_VLLM_HOST is set for the trainer."]
            if spec.asks_server
            else []
        )
        return ["", f"On Kubernetes, put the bundle at {where}:", "", "```", *lines, "```", *served]

    def command(self, spec: Spec, out: str) -> str:
        """The `kubectl` command that applies the JobSet. The command does not use the TrainJob, because some bundles
        have no TrainJob.
        """
        return f"kubectl apply -f {quoted(out, JOBSET)}"

    def sweep_command(self, spec: Spec, out: str) -> str:
        """The `kubectl` commands that apply the JobSet of each member."""
        members = quoted(out, MEMBERS)
        return f'for file in {members}/*/{JOBSET}; do kubectl apply -f "$file"; done'


ENGINE = Kubernetes()
