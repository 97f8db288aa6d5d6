"""A run of one process."""

import os
import subprocess
import sys
from collections.abc import MutableMapping

from ..core.bundle import Bundle


def environment(bundle: Bundle, environ: MutableMapping[str, str]) -> None:
    """It sees one GPU: transformers would spread micro-batches over all (nn.DataParallel)."""
    if not bundle.on_cpu:
        environ["CUDA_VISIBLE_DEVICES"] = environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]


def launch(bundle: Bundle, program: str) -> None:
    """Starts it with what accelerate's launcher would tell it. Raises CalledProcessError."""
    half = [name for name in ("bf16", "fp16") if bundle.arguments.get(name)]
    told = {"ACCELERATE_USE_CPU": str(bundle.on_cpu), "ACCELERATE_MIXED_PRECISION": (half or ["no"])[0]}
    subprocess.run([sys.executable, program], env={**os.environ, **told}, check=True)
