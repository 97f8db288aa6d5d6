"""A run of one process, which needs no launcher."""

import os
import subprocess
import sys
from collections.abc import Callable, MutableMapping
from functools import partial
from subprocess import CalledProcessError

from ...core.feature import Bundle, Feature


class SingleProcess(Feature):
    """Hooks for a run of one process."""

    def before_imports(self, bundle: Bundle, environ: MutableMapping[str, str]) -> None:
        """Show the process only one GPU, because transformers would spread micro-batches over all GPUs
        (nn.DataParallel).
        """
        if not bundle.on_cpu:
            environ["CUDA_VISIBLE_DEVICES"] = environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]

    def process_starter(self, bundle: Bundle, program: str) -> Callable[[], object]:
        """A function that starts the process with the environment that accelerate's launcher would set. Raises
        CalledProcessError.

        The process has a session of its own, as it has under torch's agent, so that Ctrl-C reaches only the launcher.
        """
        half = [name for name in ("bf16", "fp16") if bundle.arguments.get(name)]
        passed = {"ACCELERATE_USE_CPU": str(bundle.on_cpu), "ACCELERATE_MIXED_PRECISION": (half or ["no"])[0]}
        environ = {**os.environ, **passed}
        return partial(subprocess.run, [sys.executable, program], env=environ, check=True, start_new_session=True)

    def launch_failed(self, bundle: Bundle, error: Exception) -> list[tuple[str, int]]:
        """A (name, exit status) tuple for the failed process; the name is "" if the process has printed the reason."""
        if not isinstance(error, CalledProcessError):
            return []
        return [("" if error.returncode in (1, 2) else "the process", error.returncode)]
