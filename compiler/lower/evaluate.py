"""Spec to `evaluate.sh` and `evaluation.json`. As in launch.sh, no text of the spec stands in the script."""

from __future__ import annotations

from xpc.compiler.lower.dtypes import DTYPES
from xpc.compiler.lower.shell import DRY_RUN, RUN, command, start
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Json, harness

FORMAT = 1
SHARE = 0.6
"""Share of a GPU's memory that the weights may take where every process loads a copy; the rest is the batch's."""

HEAD = """\
#!/usr/bin/env bash
# Evaluates the trained model by lm-evaluation-harness {version}. evaluation.json beside this script names the tasks.
#
#   processes      {processes}
#   results        eval/results.json in the output folder of the run
#
#   ./evaluate.sh             evaluate; started in the folder that launch.sh was started in
#   ./evaluate.sh --dry-run   print the command, and stop
#   ./evaluate.sh --help      print this, and stop
#
# Nothing else is accepted. Read from the environment:
#
#   PYTHON       the interpreter (python3)
#   XPC_STAGED   a folder that launch.sh --stage has filled: no hub is asked
#
# Exit status: 0 evaluated; 1 something is wrong, and a message says what; 2 used wrongly.
"""


def tasks(spec: Spec) -> tuple[str, ...]:
    """What the harness is asked for; none where the spec writes no tasks."""
    return harness.expanded(spec.names("eval.tasks"))


def requirement(spec: Spec) -> str:
    """The harness's pin, for `requirements-eval.txt`: a file of its own, for training has no use for it."""
    return harness.requirement(tasks(spec))


def script(spec: Spec) -> str:
    """`evaluate.sh`: on one machine, one process, or one for each GPU where each can hold the model."""
    processes = _processes(spec)
    words = '"$python"'
    if processes > 1:  # -P: what lies in the caller's folder is no module of the launcher
        words = f'"$python" -P -m torch.distributed.run --standalone --nproc_per_node {processes}'
    head = HEAD.format(version=harness.version(), processes=processes)
    flags = start("evaluate.sh", "evaluated", {"--dry-run": "dry_run"})
    return "".join([head, flags, command([words], "evaluate.py"), DRY_RUN, RUN])


def evaluation(spec: Spec) -> dict[str, Json]:
    """`evaluation.json`: what trainer/evaluate.py hands to the harness."""
    micro = spec.get("eval.micro") if spec.written("eval.micro") else None
    several = spec.hardware.processes > 1 and not spec.on_cpu
    return {
        "format": FORMAT,
        "harness": harness.version(),
        "tasks": [
            {"name": None, "file": task} if harness.is_file(task) else {"name": task, "file": None}
            for task in tasks(spec)
        ],
        "allow_code_execution": spec.flag("eval.allow_code_execution"),
        "dtype": DTYPES[spec.text("precision")],
        "batch_size": micro if isinstance(micro, int) else 8 if spec.on_cpu else "auto",
        "processes": _processes(spec),
        "parallelize": several and _processes(spec) == 1,
    }


def _processes(spec: Spec) -> int:
    """One for each GPU of a machine where each holds the weights; one that spreads them over all of them, else."""
    gpu, facts = spec.hardware.gpu, spec.model.facts
    if gpu is None or facts is None:
        return 1
    width = 4 if spec.text("precision") == "fp32" else 2
    return spec.hardware.processes if facts.params * width <= SHARE * gpu.memory_gib * 2**30 else 1
