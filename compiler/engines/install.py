"""The pip commands that install what a run needs."""

from __future__ import annotations

from xpc.compiler.spec import Spec

FLASH_BUILD = ("ninja", "packaging", "psutil", "setuptools", "wheel")
"""Packages that the build of flash-attn needs, in addition to torch."""


def install(spec: Spec) -> list[str]:
    """The pip commands that install a bundle's requirements in an empty environment. flash-attn comes last, because its
    build needs torch.
    """
    locked = " -c constraints.txt" if "constraints.txt" in spec.bundled else ""
    steps = [f"pip install -r requirements.txt{locked}"]
    if spec.text("model.attn") == "flash2":
        steps.append(f"pip install {' '.join(FLASH_BUILD)}")
        steps.append("pip install --no-build-isolation -r requirements-flash.txt")
    return steps
