"""Write `job.sbatch`: the job that starts launch.sh on each node of a Slurm cluster.

sbatch reads the `#SBATCH` lines before any shell does, so rules check their contents. The script below these lines
contains no text of the spec except an image and its mounts, which rules check, too. It gets everything else from Slurm
at run time.
"""

from __future__ import annotations

import shlex

from xpc.compiler.engines.environment import read
from xpc.compiler.engines.pin import check
from xpc.compiler.engines.restarts import grace, requeues, retries
from xpc.compiler.engines.vllm_server import server_options
from xpc.compiler.spec import Spec
from xpc.grammar.package_data import read_sections

SHORTEST = 60
"""Minimum time in seconds between Slurm's stop signal and the time limit. It is a minute, because Slurm counts
minutes.
"""


def script(spec: Spec, name: str, pin: str, members: int = 0) -> str:
    """The text of `job.sbatch` for a run; with `members`, for an array with one task per member of a sweep. `name` is
    the job's name.

    `pin` is the digest of `run.sha256`; for a sweep, the digest of the list of its members' digests. A sweep's script
    is next to the sweep's `launch.sh`, whose `--list` prints the members one per line in the order of the array; each
    member is a bundle in `members/`.
    """
    train = spec.hardware.nodes
    served = spec.asks_server
    nodes = train + served
    shell = read_sections(__file__, "job.sh")
    head = shell["head"].format(
        options="\n".join(f"#SBATCH --{one}" for one in options(spec, name, members)),
        nodes=f"{train} {'node' if train == 1 else 'nodes'}",
        server_head=" One more node runs the vLLM server." if served else "",
        ending="is queued again.\n# So is a job that loses a node."
        if requeues(spec)
        else "ends with exit\n# status 75: submit it again, and it resumes.",
    )
    start = shell["start"].replace("#watch#", shell["watch"] if served else "")
    parts = [head, start]
    if served:
        reads = read(spec, "$XPC_JOB_BUNDLE").rstrip()
        parts += [shell["server_role"].format(options=server_options(spec), read=reads), shell["watched"]]
    parts += [shell["batch"], shell["member"].format(pin=pin) if members else "", shell["check"]]
    parts += [check("$pin" if members else pin, "$here", "job.sbatch")]
    within = container(spec)
    srun = '"${container[@]}" ' if within else ""
    parts += [shell["topology"].format(nodes=nodes), shell["inside"] if within else "", within]
    parts += [shell["step"].format(train=train, srun=srun)]
    parts += [shell["server"].format(train=train, srun=srun) if served else ""]
    parts += [shell["attempts"].format(attempts=1 + retries(spec)), "  serve\n" if served else "", shell["run"]]
    parts += [shell["lost"].format(nodes=nodes) if nodes > 1 else "", shell["teardown"] if served else ""]
    parts += [shell["next"].format(wait=shell["wait"] if served else "")]
    return "".join([*parts, shell["end"]])


def container(spec: Spec) -> str:
    """Shell lines that start each node's container; "" for a run without containers. Rules check the image and the
    mounts in these lines.
    """
    image = spec.get("launch.image")
    if not isinstance(image, str):
        return ""
    mounts = spec.names("launch.mounts")
    shell = read_sections(__file__, "job.sh")
    if spec.get("launch.container") == "apptainer":
        address = image if image.startswith("/") else f"docker://{image}"
        return shell["apptainer"].format(
            gpu="" if spec.on_cpu else " --nv",
            mounts="".join(f" --bind {shlex.quote(one)}" for one in mounts),
            image=shlex.quote(address),
        )
    return shell["pyxis"].format(image=shlex.quote(enroot_image(image)), mounts="".join(f",{one}" for one in mounts))


def enroot_image(image: str) -> str:
    """An image's name in pyxis's form, `host#name:tag`. The path of a squashfs file is unchanged."""
    host, slash, rest = image.partition("/")
    return f"{host}#{rest}" if slash and host and ("." in host or ":" in host or host == "localhost") else image


def options(spec: Spec, name: str, members: int = 0) -> list[str]:
    """The options for sbatch, without dashes: `partition=gpu`. Rules check the texts of the spec in them."""
    hardware = spec.hardware
    log = "%x-%A_%a" if members else "%x-%j"
    words = [
        f"job-name={name}",
        f"nodes={hardware.nodes + spec.asks_server}",
        "ntasks-per-node=1",
    ]
    if members:
        words.append(f"array=0-{members - 1}")
    if not spec.on_cpu:
        words.append(f"gres=gpu:{hardware.processes}")
    if spec.flag("launch.exclusive"):
        words += ["exclusive", "mem=0"]  # --exclusive reserves all cores, but only mem=0 reserves all memory
    else:
        words.append(f"cpus-per-task={cores(spec)}")
    if spec.get("launch.host_memory") is not None and not spec.flag("launch.exclusive"):
        words.append(f"mem={spec.integer('launch.host_memory')}G")
    for path in ("launch.partition", "launch.account", "launch.qos", "launch.constraint"):
        text = spec.get(path)
        words += [] if text is None else [f"{path.rpartition('.')[2]}={text}"]
    time = spec.get("launch.time")
    if isinstance(time, int):
        words += [f"time={limit(time)}", f"signal=B:USR1@{lead(spec, time)}"]
    words.append("requeue" if requeues(spec) else "no-requeue")
    words += [one.removeprefix("--") for one in spec.names("launch.extra_args")]
    return [*words, "open-mode=append", f"output={log}.log", f"error={log}.log"]


def cores(spec: Spec) -> int:
    """The number of cores to request on a node: the spec's `cpus`, otherwise one per process on the CPU, and eight per
    GPU.
    """
    if spec.get("launch.cpus") is not None:
        return spec.integer("launch.cpus")
    return spec.hardware.processes * (1 if spec.on_cpu else 8)


def limit(seconds: int) -> str:
    """A time in sbatch's format, rounded up to full minutes, because Slurm counts minutes: `1-06:30:00`."""
    minutes = -(-seconds // 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"


def lead(spec: Spec, seconds: int) -> int:
    """How many seconds before the time limit the run gets the stop signal: enough for a step and a checkpoint.

    The result is at most half of the time limit, and at least one minute, because Slurm counts in minutes.
    """
    return max(SHORTEST, min(grace(spec), seconds // 2, 65535))
