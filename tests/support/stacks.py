"""Run a bundle's launch.sh in the interpreter of its stack, and read the results. Used by slow tests."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from typing import Any

from attrs import frozen

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))

from interpreters import interpreter as interpreter  # noqa: E402
from patience import HUNG  # noqa: E402

QUIET = {
    "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "disabled",
    "TRL_EXPERIMENTAL_SILENCE": "1",  # a bundle's runtime sets this variable, too
}  # fmt: skip


@cache
def has(target: str, package: str) -> bool:
    """Whether the target's interpreter has this package. An interpreter also has some packages that the stack does not
    pin.
    """
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
    return subprocess.run([interpreter(target), "-c", code], check=False).returncode == 0


def environment(**variables: str) -> dict[str, str]:
    """The environment variables for a launch: the variables of this process, except those of an outer launch, such as
    RANK. In addition, they set offline mode and one thread per process, and contain ``variables``.
    """
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("ACCELERATE_", "FSDP_", "MASTER_", "RANK", "WORLD"))
    }
    return {**kept, **QUIET, **variables}


def looked_at(target: str, folders: list[str]) -> dict[str, dict[str, object]]:
    """Run inspect_bundles.py in the target's interpreter. Return a mapping from each bundle's folder to the result for
    this bundle.
    """
    from forks import shared

    program = os.path.join(REPOSITORY, "tests", "proof", "inspect_bundles.py")
    done = subprocess.run([shared(target).python, program], input=json.dumps(folders), text=True,
                          capture_output=True, env=environment(), check=False, timeout=HUNG)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@frozen
class Run:
    """A finished launch: its exit status and output (``done``), and its output folder (``out``)."""

    done: subprocess.CompletedProcess[str]
    out: str

    @property
    def output(self) -> str:
        """The end of the standard output and of the standard error, for messages of failed assertions."""
        return f"{self.done.stdout[-3000:]}\n{self.done.stderr[-3000:]}"

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The events of metrics.jsonl."""
        with open(os.path.join(self.out, "metrics.jsonl"), encoding="utf-8") as handle:
            return [json.loads(line) for line in handle]

    @property
    def losses(self) -> list[float]:
        """The training losses, in the order of the file."""
        return [event["loss"] for event in self.metrics if "loss" in event]

    @property
    def steps(self) -> list[float]:
        """The steps for which a loss was logged."""
        return [event["step"] for event in self.metrics if "loss" in event]

    @property
    def summary(self) -> dict[str, Any]:
        """The content of the run's summary.json."""
        with open(os.path.join(self.out, "summary.json"), encoding="utf-8") as handle:
            return dict(json.load(handle))


def payload(bundle: str) -> dict[str, Any]:
    """The content of the bundle's trainer_args.json."""
    with open(os.path.join(bundle, "trainer_args.json"), encoding="utf-8") as handle:
        return dict(json.load(handle))


def launch(bundle: str, cwd: str, *words: str, **variables: str) -> Run:
    """Start a bundle's launch.sh in the folder ``cwd``, and wait until it has ended. It runs in the interpreter of the
    bundle's target, unless PYTHON names another interpreter.
    """
    plan = payload(bundle)
    variables.setdefault("PYTHON", interpreter(plan["target"]))
    done = subprocess.run([os.path.join(bundle, "launch.sh"), *words], cwd=cwd, text=True, capture_output=True,
                          timeout=HUNG, env=environment(**variables), check=False)  # fmt: skip
    return Run(done, os.path.join(cwd, plan["arguments"]["output_dir"]))
