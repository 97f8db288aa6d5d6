"""Cases of jobs for Slurm (XP85x)."""

from __future__ import annotations

from case_support import Case, spec

IMAGE = "ghcr.io/me/train:1"
PROMPTS = "qwen2.5-3b on deepmath-103k for 100 steps"


def slurm(*settings: str) -> str:
    return f"launch slurm({', '.join(settings)})" if settings else "launch slurm"


def served(hardware: str, precision: str) -> str:
    method = "method grpo(generations=8, rewards=[accuracy], vllm(mode=server))"
    return spec(method, slurm(), train=PROMPTS, hardware=hardware, precision=precision)


CASES: tuple[Case, ...] = (
    Case("XP850", spec(slurm('partition="big mem"')), spec(slurm('partition="big-mem,small"'))),
    Case("XP850", spec(slurm('partition="-x"')), spec(slurm('partition="x"')), variant="mark-first"),
    Case("XP850", spec(slurm('account="lab #1"')), spec(slurm('account="me@lab"')), variant="account"),
    Case("XP850", spec(slurm('qos="very high"')), spec(slurm("qos=high")), variant="qos"),
    Case(
        "XP850", spec(slurm('constraint="a100 ib"')), spec(slurm('constraint="[a100|h100]&ib"')), variant="constraint"
    ),
    Case(
        "XP920",
        spec(slurm('extra_args=["--nodes=4"]')),
        spec(slurm('extra_args=["--exclude=node13", "--mail-type=END"]')),
    ),
    Case("XP920", spec(slurm('extra_args=["-N4"]')), spec(slurm('extra_args=["--mem=200G"]')), variant="short"),
    Case(
        "XP920",
        spec(slurm("host_memory=200", 'extra_args=["--mem=200G"]')),
        spec(slurm("host_memory=200", 'extra_args=["--nice"]')),
        variant="memory",
    ),
    Case("XP921", spec(slurm(f'image="{IMAGE}"')), spec(slurm(f'image="{IMAGE}"', "container=pyxis"))),
    Case(
        "XP921",
        spec(slurm("container=apptainer")),
        spec(slurm('image="/shared/a.sif"', "container=apptainer")),
        variant="no-image",
    ),
    Case(
        "XP921",
        spec(slurm('mounts=["/data:/data"]')),
        spec(slurm('mounts=["/data:/data"]', f'image="{IMAGE}"', "container=apptainer")),
        variant="mounts",
    ),
    Case("XP922", spec(slurm("exclusive", "cpus=16")), spec(slurm("cpus=16", "host_memory=200"))),
    Case("XP851", spec(slurm("time=8m")), spec(slurm("time=10m"))),
    Case("XP851", spec(slurm("time=90s")), spec(slurm("time=20m")), variant="nothing-left"),
    Case("XP852", served("8 x cpu", "fp32"), served("8 x h100-80gb", "bf16")),
)
