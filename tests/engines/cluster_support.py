"""Specs for clusters, and the files of their bundles parsed as YAML."""

from __future__ import annotations

from typing import Any

import yaml
from case_support import on_cpu, spec
from compile_support import compiled

IMAGE = "ghcr.io/me/train:1"
GRPO = "method grpo(generations=8, rewards=[accuracy], {vllm})"
PROMPTS = "qwen2.5-3b on deepmath-103k for 100 steps"


def k8s(more: str = "") -> str:
    """The text of the clause `launch k8s`. `more` is text that follows the other settings of the clause, such as `,
    requeue`.
    """
    return f'launch k8s(image="{IMAGE}", volume=claim{more})'


def sky(more: str = "volume=shared") -> str:
    return f"launch sky({more})"


def ray(more: str = 'volume="/mnt/shared"') -> str:
    return f"launch ray({more})"


def slurm(*settings: str) -> str:
    return f"launch slurm({', '.join(settings)})" if settings else "launch slurm"


SERVER = spec(GRPO.format(vllm="vllm(mode=server)"), "nodes 2", k8s(), train=PROMPTS, batch="gbs=128 micro=8")
OLD_SERVER = spec(GRPO.format(vllm="vllm(mode=server)"), k8s(), "target trl-0.18", train=PROMPTS)
TWO = ("nodes 2",)
K8S = {
    "one": spec(k8s()),
    "two": spec(*TWO, k8s(", secret=tokens, time=2d"), batch="gbs=128 micro=8"),
    "bare": spec(f'launch k8s(image="{IMAGE}")'),
    "cpu": on_cpu(*TWO, k8s(), batch="gbs=8 micro=2"),
    "never": spec(k8s(", requeue=false")),
    "placed": spec(
        k8s(
            ', cpus=96, host_memory=800, retries=0, pull_secret=registry, node_selector=["pool=a100"], '
            'tolerations=["nvidia.com/gpu=present:NoSchedule", "spot"], env=["NCCL_DEBUG=INFO"]'
        )
    ),
    "server": SERVER,
    "old-server": OLD_SERVER,
}
SKY = {
    "one": spec(sky()),
    "two": spec(*TWO, sky(f'volume=shared, image="{IMAGE}"'), "track wandb clearml", batch="gbs=128 micro=8"),
    "bucket": spec(sky('volume="s3://mine/runs"'), save='save "out/run" hub(name="me/run", private)'),
    "bare": spec("launch sky"),
    "cpu": on_cpu(*TWO, sky(), batch="gbs=8 micro=2"),
    "never": spec(sky("volume=shared, requeue=false")),
    "flash": spec(sky(), "model(attn=flash2)"),
    "options": spec(sky('volume=shared, cpus=32, host_memory=400, retries=9, extra_args=["--use-spot"]')),
    "colocate": spec(GRPO.format(vllm="vllm(mode=colocate)"), sky(), train=PROMPTS),
}


def read(text: str, file: str, name: str = "run.xp") -> dict[str, Any]:
    """Compile a spec; return a file of its bundle, parsed as YAML."""
    return dict(yaml.safe_load(compiled(text, name=name)[file]))


def trainjob(text: str) -> dict[str, Any]:
    return dict(read(text, "trainjob.yaml")["spec"])


def job(text: str, at: int = 0) -> dict[str, Any]:
    """The specification of a Job in jobset.yaml. `at` is the index of the Job's template in `replicatedJobs`."""
    return dict(read(text, "jobset.yaml")["spec"]["replicatedJobs"][at]["template"]["spec"])


def container(text: str, at: int = 0) -> dict[str, Any]:
    return dict(job(text, at)["template"]["spec"]["containers"][0])
