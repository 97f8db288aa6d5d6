"""Saving, reproducibility and launch (XP7xx, XP8xx)."""

from __future__ import annotations

from collections.abc import Iterator

from xpc.compiler.kinds import NEVER
from xpc.compiler.rules.rule import Finding, rule
from xpc.compiler.spec import Spec


@rule("XP701", "remote-code-unpinned", "warning")
def remote_code_unpinned(spec: Spec) -> Iterator[Finding]:
    """Code that comes with a model runs on your machines; without a revision it can change between two runs."""
    if spec.flag("model.trust_remote_code") and spec.model.revision is None and spec.model.path is None:
        yield Finding(
            spec.place("model.trust_remote_code"),
            "remote code of no fixed revision",
            'write `model(revision="<commit>")`',
        )


@rule("XP702", "resume-without-state", "warning")
def resume_without_state(spec: Spec) -> Iterator[Finding]:
    """Without the full state a resumed run starts its optimizer, schedule and random numbers afresh, silently.

    Source: transformers 5.23 `trainer.py`; executed (Adam's step counter was 2 instead of 4).
    """
    if not spec.flag("save.full_state") and spec.get("save.resume") == "auto" and spec.amount("save.every") != NEVER:
        yield Finding(
            spec.place("save.full_state", "nothing to resume from but weights"),
            "a run resumed from weights alone is not the same run",
            "write `resume = never`",
        )


@rule("XP703", "keep-without-saving", "warning")
def keep_without_saving(spec: Spec) -> Iterator[Finding]:
    """`keep` limits checkpoints, and none is written."""
    if spec.written("save.keep") and spec.amount("save.every") == NEVER:
        yield Finding(
            spec.place("save.keep"),
            "`keep` without checkpoints",
            "write `every = epoch`, or leave `keep` out",
            (spec.label("save.every", "never"),),
        )


@rule("XP801", "wheels-without-volta", "warning")
def wheels_without_volta(spec: Spec) -> Iterator[Finding]:
    """From torch 2.11 on only the CUDA 12.6 wheels carry kernels for compute capability 7.0 (V100).

    The default wheels install and then fail with "no kernel image is available". Source: torch release notes.
    """
    gpu, wheels = spec.hardware.gpu, spec.target.facts.get("volta_wheels")
    if gpu is not None and gpu.capability < (7, 5) and isinstance(wheels, str):
        torch = spec.target.pins["torch"]
        yield Finding(
            spec.place("hardware", f"compute capability {gpu.capability[0]}.{gpu.capability[1]}"),
            f"the default wheels of torch {torch} have no kernels for {gpu.name}",
            f"install torch {torch} from its {wheels} wheels; the preflight checks it",
        )


@rule("XP802", "torchrun-without-the-yaml")
def torchrun_without_yaml(spec: Spec) -> Iterator[Finding]:
    """FSDP is described in accelerate.yaml, which `accelerate launch` reads and torchrun does not.

    Started by torchrun the run would be plain DDP; the runtime stops it, after every process has loaded torch.
    Source: accelerate 1.15 `commands/launch.py` (the file becomes environment variables).
    """
    if spec.text("launch.launcher") == "torchrun" and spec.sharded_by_fsdp:
        yield Finding(
            spec.place("launch.launcher", "does not read accelerate.yaml"),
            f"{spec.text('strategy')} cannot be started by torchrun",
            "write `launcher = accelerate`",
            (spec.label("strategy", "the strategy"),),
            "launcher = accelerate",
        )


RULES = (remote_code_unpinned, resume_without_state, keep_without_saving, wheels_without_volta, torchrun_without_yaml)
