"""Write `evaluate.sh` and `evaluation.json`. Like launch.sh, the script contains no text of the spec."""

from __future__ import annotations

from xpc.compiler.lower.dtypes import DTYPES
from xpc.compiler.lower.shell import RUN, command, shared, start
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Json, harness
from xpc.grammar.package_data import read_text

FORMAT = 1
SHARE = 0.6
"""The largest share of a GPU's memory that the weights may take so that every GPU evaluates with its own copy of them.
The rest of the memory is for the batch.
"""


def tasks(spec: Spec) -> tuple[str, ...]:
    """The tasks for lm-evaluation-harness; empty if the spec names none."""
    return harness.expanded(spec.names("eval.tasks"))


def requirement(spec: Spec) -> str:
    """The requirement (`lm_eval==...`) for `requirements-eval.txt`. This file is separate, because training does not
    need lm-evaluation-harness.
    """
    return harness.requirement(tasks(spec))


def script(spec: Spec) -> str:
    """The text of `evaluate.sh`. On one machine, the script starts one process per GPU if the model fits on one GPU.
    Otherwise it starts a single process.
    """
    processes = _processes(spec)
    words = '"$python"'
    if processes > 1:  # -P stops Python from importing modules from the folder in which the user starts the script
        words = f'"$python" -P -m torch.distributed.run --standalone --nproc_per_node {processes}'
    head = read_text(__file__, "evaluate.sh").format(version=harness.version(), processes=processes)
    flags = start("evaluate.sh", "evaluated", {"--dry-run": "dry_run"})
    return "".join([head, flags, command([words], "evaluate.py"), shared()["dry_run"], RUN])


def evaluation(spec: Spec) -> dict[str, Json]:
    """The content of `evaluation.json`: what trainer/evaluate.py passes on to lm-evaluation-harness."""
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
    """The number of processes. If the weights fit on one GPU, it is the number of GPUs in a machine. Otherwise it is 1,
    and this process spreads the weights over all GPUs.
    """
    gpu, facts = spec.hardware.gpu, spec.model.facts
    if gpu is None or facts is None:
        return 1
    width = 4 if spec.text("precision") == "fp32" else 2
    return spec.hardware.processes if facts.params * width <= SHARE * gpu.memory_gib * 2**30 else 1
