"""Write `job.sbatch`: the job that starts launch.sh on each node of a Slurm cluster.

sbatch itself, and not a shell, reads the `#SBATCH` lines. So quotes would not make the texts of the spec in these lines
safe; instead, rules check these texts. The script below the `#SBATCH` lines contains only two texts of the spec: the
image and the mounts, which rules check, too. All other values come from Slurm at run time.
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
"""The stop signal comes at least this many seconds before the time limit: one minute, because Slurm counts in whole
minutes.
"""


def script(spec: Spec, name: str, pin: str, members: int = 0) -> str:
    """The text of `job.sbatch` for a run. With `members`, the job is an array with one element for each member of a
    sweep. `name` is the name of the job.

    `pin` is the digest of `run.sha256`; for a sweep, it is the digest of the list of all members' digests. A sweep's
    script is next to the sweep's `launch.sh`, and `launch.sh --list` prints the members, one per line, in the order of
    the array. Each member is a bundle in `members/`.
    """
    train = spec.hardware.nodes
    served = spec.asks_server
    nodes = train + served
    shell = read_sections(__file__, "job.sh")
    head = shell["head"].format(
        options="\n".join(f"#SBATCH --{one}" for one in options(spec, name, members)),
        nodes=f"{train} {'node' if train == 1 else 'nodes'}",
        server_head=" One more node runs the vLLM server." if served else "",
        ending="is queued again.\n# A job that loses a node is queued again, too."
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
    """Shell lines that start the container of each node, or "" for a run without containers. The lines contain the
    spec's image and mounts, which rules have checked.
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
    """The name of an image as pyxis writes it: `host#name:tag`. The path of a squashfs file stays as it is."""
    host, slash, rest = image.partition("/")
    return f"{host}#{rest}" if slash and host and ("." in host or ":" in host or host == "localhost") else image


def options(spec: Spec, name: str, members: int = 0) -> list[str]:
    """The options for sbatch, without dashes: `partition=gpu`. Some options contain texts of the spec; rules have
    checked these texts.
    """
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
        # --exclusive alone reserves all cores of a node, but not all of its memory; --mem=0 reserves the memory, too
        words += ["exclusive", "mem=0"]
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
    """The number of cores to request on a node: the spec's `cpus`. If the spec does not state `cpus`, it is eight cores
    for each GPU or, in a run on CPUs, one core for each process.
    """
    if spec.get("launch.cpus") is not None:
        return spec.integer("launch.cpus")
    return spec.hardware.processes * (1 if spec.on_cpu else 8)


def limit(seconds: int) -> str:
    """Write a time in sbatch's format, such as `1-06:30:00`. The time is rounded up to full minutes, because Slurm
    counts minutes.
    """
    minutes = -(-seconds // 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"


def lead(spec: Spec, seconds: int) -> int:
    """The number of seconds between the stop signal and the time limit: enough to finish a step and to write a
    checkpoint.

    The result is at most half of the time limit, and at least one minute, because Slurm counts in minutes.
    """
    return max(SHORTEST, min(grace(spec), seconds // 2, 65535))
