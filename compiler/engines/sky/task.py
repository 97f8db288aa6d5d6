"""Write `sky.yaml`: a SkyPilot task that starts launch.sh on every node. Its shell code contains no text of
the spec.
"""

from __future__ import annotations

from xpc.compiler.engines.containers import CACHE, FOLDER, pod_name, tokens
from xpc.compiler.engines.install import install
from xpc.compiler.engines.pin import check
from xpc.compiler.engines.restarts import ONCE, TEMPFAIL, requeues, retries
from xpc.compiler.engines.sky.catalog import gpu_names, is_bucket
from xpc.compiler.engines.yamltext import document
from xpc.compiler.spec import Spec
from xpc.compiler.stacks import Json

PORT = 8008

COMMENT = """\
A task of SkyPilot 0.12 or newer for {nodes}. Submit it in this folder, which is copied to every node:
{submit}
Exit status {tempfail} (stopped on request, checkpoint written) {again}"""
RANKS = """\
if [ "$SKYPILOT_NUM_NODES" != {nodes} ]; then
  echo "sky.yaml: the task has $SKYPILOT_NUM_NODES nodes, and the bundle is for {nodes}" >&2
  exit 1
fi
"""
NODE = """\
export NODE_RANK="$SKYPILOT_NODE_RANK" MASTER_ADDR="${{SKYPILOT_NODE_IPS%%[!0-9A-Za-z.:-]*}}" MASTER_PORT={port}
"""


def files(spec: Spec, pin: str) -> dict[str, str]:
    """The file `sky.yaml`, a SkyPilot task that runs the bundle. `pin` is the bundle's digest: before it starts the
    run, each node checks that its copy of the bundle has this digest.
    """
    nodes = spec.hardware.nodes
    again = "or a preemption restarts the run." if requeues(spec) else "does not restart the run; a preemption does."
    comment = COMMENT.format(
        nodes=f"{nodes} node{'s' if nodes > 1 else ''}", submit=submit(spec), tempfail=TEMPFAIL, again=again
    )
    return {"sky.yaml": document(_task(spec, pin), comment)}


def submit(spec: Spec) -> str:
    """The command that submits the task, with the secrets that the run needs."""
    return " ".join(
        [
            "sky jobs launch",
            *spec.names("launch.extra_args"),
            *(f"--secret {name}" for name in _secrets(spec)),
            "sky.yaml",
        ]
    )


def _secrets(spec: Spec) -> list[str]:
    """The names of the environment variables that contain the secrets of the run, such as HF_TOKEN."""
    return [*(["HF_TOKEN"] if spec.flag("save.hub") else []), *tokens(spec)]


def _task(spec: Spec, pin: str) -> dict[str, Json]:
    out: dict[str, Json] = {
        "name": pod_name(spec.name),
        "num_nodes": spec.hardware.nodes,
        "workdir": ".",
        "resources": _resources(spec),
    }
    secrets = _secrets(spec)
    if secrets:
        out["secrets"] = dict.fromkeys(secrets)
    volume = spec.get("launch.volume")
    if isinstance(volume, str) and is_bucket(volume):
        out["file_mounts"] = {FOLDER: {"source": volume, "mode": "MOUNT_CACHED"}}
    elif isinstance(volume, str):
        out["volumes"] = {FOLDER: volume}
    out["setup"] = "set -e\n" + "".join(f"python3 -m {line}\n" for line in install(spec))
    out["run"] = _run(spec, pin)
    return out


def _resources(spec: Spec) -> dict[str, Json]:
    gpu, count = spec.hardware.gpu, spec.hardware.processes
    out: dict[str, Json] = {"cpus": f"{spec.get('launch.cpus') or count}+"}
    if gpu is not None:
        out = {"accelerators": f"{gpu_names()[gpu.name]}:{count}"}
        out.update({"cpus": f"{spec.integer('launch.cpus')}+"} if spec.get("launch.cpus") is not None else {})
    if spec.get("launch.host_memory") is not None:
        out["memory"] = f"{spec.integer('launch.host_memory')}+"
    image = spec.get("launch.image")
    if isinstance(image, str):
        out["image_id"] = f"docker:{image}"
    if requeues(spec) or retries(spec):
        stopped: dict[str, Json] = {"recover_on_exit_codes": [TEMPFAIL]} if requeues(spec) else {}
        out["job_recovery"] = {"max_restarts_on_errors": retries(spec), **stopped}
    return out


def _run(spec: Spec, pin: str) -> str:
    """The shell code that every node runs. It reads the addresses of the nodes from a variable of SkyPilot. The
    variable has one address per line, and the head node's address comes first.
    """
    nodes = spec.hardware.nodes
    lines = ["set -eu\nbundle=$PWD\n", check(pin, "$bundle", "sky.yaml"), RANKS.format(nodes=nodes)]
    if nodes > 1:
        lines.append(NODE.format(port=PORT))
    volume = spec.get("launch.volume")
    if isinstance(volume, str):
        lines.append("" if is_bucket(volume) else CACHE)
        lines.append(f"cd {FOLDER}\n")
    return "".join([*lines, ONCE, 'exec bash "$bundle/launch.sh"\n'])
