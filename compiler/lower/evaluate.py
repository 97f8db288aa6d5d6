"""Spec to `evaluate.sh` and `evaluation.json`. As in launch.sh, no text of the spec stands in the script."""

from __future__ import annotations

from xpc.compiler import harness
from xpc.compiler.lower.arguments import DTYPES
from xpc.compiler.spec import Spec
from xpc.compiler.targets import Json

FORMAT = 1
SHARE = 0.6
"""Share of a GPU's memory that the weights may take where every process loads a copy; the rest is the batch's."""

SCRIPT = """\
#!/usr/bin/env bash
# Evaluates the trained model by lm-evaluation-harness {version}. evaluation.json beside this script names the tasks.
#
#   processes      {processes}
#   results        eval/results.json in the output folder of the run
#
#   ./evaluate.sh             evaluate; started in the folder that launch.sh was started in
#   ./evaluate.sh --dry-run   print the command, and stop
#
# PYTHON names the interpreter (default: python3). Nothing else is accepted.
if [ -z "${{BASH_VERSION:-}}" ]; then
  echo "evaluate.sh: this is a script for bash: bash evaluate.sh" >&2
  exit 2
fi
set -euo pipefail

script=$(readlink -f -- "${{BASH_SOURCE[0]}}")
here=${{script%/*}}
python=${{PYTHON:-python3}}
dry_run=false

if [ "$#" -gt 1 ]; then
  echo "evaluate.sh: one argument at most; what is evaluated is decided by the bundle, not by flags" >&2
  exit 2
fi
case "${{1:-}}" in
  "") ;;
  --dry-run) dry_run=true ;;
  *)
    printf 'evaluate.sh: unknown argument %q; only --dry-run is accepted\\n' "$1" >&2
    exit 2
    ;;
esac

command=(
{words}  "$here/trainer/harness.py"
)

if [ "$dry_run" = true ]; then
  printf '%q ' "${{command[@]}}"
  printf '\\n'
  exit 0
fi
exec "${{command[@]}}"
"""


def tasks(spec: Spec) -> tuple[str, ...]:
    """What the harness is asked for; none where the spec writes no tasks."""
    found = spec.get("eval.tasks")
    return harness.expanded(tuple(str(one) for one in found)) if isinstance(found, tuple) else ()


def requirement(spec: Spec) -> str:
    """The harness's pin, for `requirements-eval.txt`: a file of its own, for training has no use for it."""
    return harness.requirement(tasks(spec))


def script(spec: Spec) -> str:
    """`evaluate.sh`: on one machine, one process, or one for each GPU where each can hold the model."""
    processes = _processes(spec)
    words = '  "$python"\n'
    if processes > 1:  # -P: what lies in the caller's folder is no module of the launcher
        words = f'  "$python" -P -m torch.distributed.run --standalone --nproc_per_node {processes}\n'
    return SCRIPT.format(version=harness.version(), processes=processes, words=words)


def evaluation(spec: Spec) -> dict[str, Json]:
    """`evaluation.json`: what trainer/harness.py hands to the harness."""
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
