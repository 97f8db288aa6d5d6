"""Texts of `sweep` blocks for tests: ``swept("lr = [1e-6, 2e-6]")``."""

from case_support import spec

TWO = "sweep {\n  lr = [1e-6, 2e-6]\n  zip {\n    gbs = [128, 256]\n    micro = [16, 8]\n  }\n}\n"
UNBATCHED = spec().replace("batch gbs=128 micro=16 seq=1024\n", "batch seq=1024\n")


def swept(*lines, before=""):
    return before + "\n".join(["sweep {", *(f"  {line}" for line in lines), "}"]) + "\n"


def get(member, path):
    return member.spec.get(path)
