"""Cases of sweeps (XP880 to XP888)."""

from __future__ import annotations

from case_support import Case, spec


def sweep(*lines: str) -> str:
    return "\n".join(["sweep {", *(f"  {line}" for line in lines), "}"])


def _numbers(name: str, count: int) -> str:
    return f"{name} = [{', '.join(str(number) for number in range(1, count + 1))}]"


MANY = (_numbers("seed", 22), _numbers("data.seed", 22), _numbers("track.every", 22))
SLURM = "launch slurm(time=1h)"
HUB = 'save "out/run" {\n  hub(name=me/model, private)\n}'

CASES: tuple[Case, ...] = (
    Case("XP880", spec(sweep("lr = 1e-6")), spec(sweep("lr = [1e-6]"))),
    Case("XP880", spec("sweep { }"), spec(sweep("lr = [1e-6]")), variant="empty"),
    Case("XP880", spec(sweep("lr = []")), spec(sweep("lr = [1e-6]")), variant="no-values"),
    Case(
        "XP880",
        spec(sweep("optimizer {", "  lr = [1e-6]", "}")),
        spec(sweep("optimizer.lr = [1e-6]")),
        variant="clause",
    ),
    Case("XP880", spec(sweep("eval = [1]")), spec(sweep("eval.micro = [1]")), variant="name-of-a-clause"),
    Case(
        "XP881",
        spec(sweep("zip {", "  lr = [1e-6, 2e-6]", "  seed = [1, 2, 3]", "}")),
        spec(sweep("zip {", "  lr = [1e-6, 2e-6]", "  seed = [1, 2]", "}")),
    ),
    Case("XP882", spec(sweep('save = ["out/a", "out/b"]')), spec(sweep("save.keep = [1, 2]"))),
    Case("XP882", spec(sweep("target = [trl-1.16, trl-0.18]")), spec("target trl-0.18"), variant="target"),
    Case("XP883", spec(sweep(*MANY)), spec(sweep(*MANY[:2]))),
    Case("XP884", spec(sweep("lr = [1e-6, 0.000001]")), spec(sweep("lr = [1e-6, 1e-5]"))),
    Case("XP884", spec(sweep("strategy = [fsdp, full_shard]"), strategy="fsdp").replace("strategy fsdp\n", ""),
         spec(sweep("strategy = [fsdp, shard_grad_op]"), strategy="fsdp").replace("strategy fsdp\n", ""),
         variant="in-other-words"),
    Case("XP885", spec("seed 7", sweep("seed = [1, 2]")), spec(sweep("seed = [1, 2]"))),
    Case(
        "XP886",
        spec(sweep("lr = [1e-6, 2e-6]"), save=HUB.replace("private", 'private, revision="v1"')),
        spec(sweep("lr = [1e-6, 2e-6]"), save=HUB),
    ),
    Case(
        "XP887",
        spec(SLURM, sweep("nodes = [1, 2]"), batch="micro=16 accum=1"),
        spec(sweep("nodes = [1, 2]"), batch="micro=16 accum=1"),
    ),
    Case(
        "XP888",
        spec(SLURM, sweep(_numbers("seed", 501), "lr = [1e-6, 2e-6]")),
        spec(SLURM, sweep(_numbers("seed", 500), "lr = [1e-6, 2e-6]")),
    ),
)  # fmt: skip
