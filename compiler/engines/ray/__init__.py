"""`launch ray`: `ray_job.py`, a Ray Train job. Each worker of the job starts `launch.sh` on a node of a Ray cluster."""

from __future__ import annotations

import json

from xpc.compiler.engines.engine import MEMBERS, Engine, quoted
from xpc.compiler.engines.restarts import grace, requeues, retries
from xpc.compiler.spec import Spec
from xpc.grammar.package_data import read_text

SCRIPT, NUMBERS = "ray_job.py", "ray.json"
README = f"""
On a Ray cluster (Ray 2.51 or newer), submit the run as a job in this folder, which Ray copies to every node. The
packages of requirements.txt must be installed on the nodes; if they have their own environment there, PYTHON names its
interpreter: `--runtime-env-json '{{"env_vars": {{"PYTHON": "/shared/venv/bin/python"}}}}'`. Put tokens
(HF_TOKEN, WANDB_API_KEY) into the environment of the nodes.

```
ray job submit --working-dir . -- python {SCRIPT}
```
"""


class Ray(Engine):
    """The engine for Ray 2.51 or newer. From this version on, Ray has version 2 of Ray Train."""

    submission = (
        "working-dir", "no-wait", "entrypoint-num-cpus", "entrypoint-num-gpus", "entrypoint-memory",
        "entrypoint-resources",
    )  # fmt: skip
    volume = "an absolute folder that every node of the Ray cluster has"

    def files(self, spec: Spec, pin: str) -> dict[str, str]:
        """Two files: the script `ray_job.py`, which is the same in every bundle, and `ray.json`, which contains the
        numbers of this run.
        """
        return {SCRIPT: read_text(__file__, SCRIPT), NUMBERS: json.dumps(numbers(spec), indent=2) + "\n"}

    def readme(self, spec: Spec) -> list[str]:
        """Lines of README.md on how to submit the job."""
        return README.replace("ray job submit --", f"ray job submit{words(spec)} --").splitlines()

    def command(self, spec: Spec, out: str) -> str:
        """The command that submits the job, with the bundle as its working directory."""
        return f"ray job submit{words(spec)} --working-dir {quoted(out)} -- python {SCRIPT}"

    def sweep_command(self, spec: Spec, out: str) -> str:
        """Commands that submit a job for each member. Ray queues the jobs until nodes are free."""
        members = quoted(out, MEMBERS)
        submit = f'ray job submit{words(spec)} --no-wait --working-dir "$member" -- python {SCRIPT}'
        return f"for member in {members}/*; do {submit}; done"


def numbers(spec: Spec) -> dict[str, object]:
    """The contents of `ray.json`: the resources that `ray_job.py` requests from Ray, and how often it restarts a failed
    run.
    """
    again, hardware = requeues(spec), spec.hardware
    return {
        "nodes": hardware.nodes,
        "cpus": spec.get("launch.cpus") or hardware.processes,
        **({} if spec.get("launch.host_memory") is None else {"memory": spec.integer("launch.host_memory")}),
        "gpus": 0 if spec.on_cpu else hardware.processes,
        "folder": spec.get("launch.volume"),
        "retries": retries(spec),
        "again": again,
        "grace": grace(spec),
    }


def words(spec: Spec) -> str:
    """The options for `ray job submit` that the spec states in `extra_args`, as text."""
    return "".join(f" {one}" for one in spec.names("launch.extra_args"))


ENGINE = Ray()
