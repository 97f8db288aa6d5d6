"""Cases of jobs for Slurm (XP85x)."""

from __future__ import annotations

from case_support import Case, spec

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
    Case("XP851", spec(slurm("time=8m")), spec(slurm("time=10m"))),
    Case("XP851", spec(slurm("time=90s")), spec(slurm("time=20m")), variant="nothing-left"),
    Case("XP852", served("8 x cpu", "fp32"), served("8 x h100-80gb", "bf16")),
)
