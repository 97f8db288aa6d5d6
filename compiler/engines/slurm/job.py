"""Spec to `job.sbatch`: the job that starts launch.sh on each node of a Slurm cluster.

sbatch reads the `#SBATCH` lines before any shell, so rules check their contents (XP850, XP920). The script below them
contains no text of the spec except an image and its mounts (XP912, XP921). It asks Slurm for everything else.
"""

from __future__ import annotations

import shlex

from xpc.compiler.engines.environment import read
from xpc.compiler.engines.pin import check
from xpc.compiler.engines.restarts import grace, requeues, retries
from xpc.compiler.engines.vllm_server import server_options
from xpc.compiler.spec import Spec

SHORTEST = 60
"""Shortest time in seconds between Slurm's signal and the limit, as its clock counts minutes."""

HEAD = """\
#!/usr/bin/env bash
{options}
# Starts launch.sh on {nodes} of a Slurm cluster.{server_head}
#
#   sbatch job.sbatch                        submit; relative folders of the run begin in the current folder
#   sbatch --qos=high --mem=200G job.sbatch  the same; options of sbatch go before the lines above
#
# The job gets your environment: activate the virtual environment first, or set PYTHON. The bundle, the data and the
# output must be in folders that every node sees.
#
# A job that is asked to stop (near its limit, or to make room for another job) saves a checkpoint, and {ending}
"""

START = """\
set -euo pipefail

if [ -z "${SLURM_JOB_ID:-}" ]; then
  echo "job.sbatch: this is a Slurm job; submit it: sbatch job.sbatch" >&2
  exit 2
fi
say() { printf 'job.sbatch: %s\\n' "$*"; }

# Runs a command to its end, passes USR1 and TERM on to it as USR1, and puts its exit status into $status. It is USR1
# because srun kills its tasks when it gets TERM itself. A subshell waits in the foreground: bash may lose the status of
# a command that ends at the moment when a signal interrupts `wait`.
stop_signal="" own=""
# shellcheck disable=SC2317,SC2329 # the traps call it
pass_on() {
  local child
  stop_signal=${stop_signal:-$1}
  if { read -r child <"$own/child"; } 2>/dev/null; then kill -s USR1 "$child" 2>/dev/null || true; fi
}
trap 'pass_on USR1' USR1
trap 'pass_on TERM' TERM
run() {
  status=138
  if [ -n "$stop_signal" ]; then return; fi
  (
    trap : USR1 TERM
    code=0
    bash -c 'echo "$$" >"$0"; exec "$@"' "$own/child" "$@" || code=$?
    echo "$code" >"$own/status"
  ) &
  local waiter=$!
#watch#  while kill -0 "$waiter" 2>/dev/null; do wait "$waiter" || true; done
  status=137
  { read -r status <"$own/status"; } 2>/dev/null || true
  rm -f -- "$own/child"
}

# After the traps: for a node that a signal ends, srun reports the signal instead of a later failure of another node.
own=$(mktemp -d)
trap 'rm -rf -- "$own"' EXIT

# The part of each node: srun starts this script again on every node. It returns the highest status of all nodes, and
# at the first status that is not 0 it ends the other nodes with TERM, which the run handles as any request to stop.
if [ "${1:-}" = node ]; then
  export NODE_RANK=$SLURM_NODEID XPC_RETRIES=0 # the batch shell retries, on all nodes
  # Compile kernels once per job and node: in a shared folder the nodes would wait for each other.
  export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$own/triton}
  run "$XPC_JOB_BUNDLE/launch.sh"
  # 138 and 143: the signal came before the run could handle it. Else 143 is kept for a node whose shell got it first.
  if [ -n "$stop_signal" ] && { [ "$status" = 138 ] || [ "$status" = 143 ]; }; then status=75; fi
  if [ "$status" = 143 ]; then status=137; fi
  # A node that starts slowly could not yet handle the TERM that follows a failure.
  if [ "$status" != 0 ] && [ "$status" != 75 ] && ((SECONDS < 5)); then sleep $((5 - SECONDS)) || true; fi
  if [ "$status" = 75 ] && [ "$stop_signal" = USR1 ]; then
    # The batch shell passed the request on; it also runs on the first node and finds the mark there.
    if [ "$NODE_RANK" = 0 ]; then touch "$XPC_JOB_STOPPED"; fi
    exit 0
  fi
  # Slurm asked: the others exit first. A failure counts more than their 75.
  if [ "$status" = 75 ]; then sleep 3 || true; fi
  if ((status > 0 && status < 55)); then status=$((200 + status)); fi
  exit "$status"
fi
"""

SERVER_ROLE = """\
if [ "${{1:-}}" = server ]; then{read}
  exec "${{PYTHON:-python3}}" "$XPC_JOB_BUNDLE/trainer/vllm_server.py" {options}
fi
"""

BATCH = """
# The batch shell, on the first node. Slurm runs a copy of this script, so ask for its original path. In an array the
# id of the last task alone would name the complete array.
id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
id=${id:-$SLURM_JOB_ID}
job=$(scontrol show job "$id")
script=$(sed -n '/^ *Command=/{s///p;q;}' <<<"$job")
if [ -n "$script" ]; then script=$(realpath -ms -- "$script"); fi # a container mounts absolute paths
here=${script%/*}
"""

MEMBER = """\
if ! printf '%s  %s\\n' {pin} "$here/runs.sha256" | sha256sum --check --status; then
  say "the sweep in $here is not the one that was submitted: submit it again" >&2
  exit 1
fi
pin=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))s/ .*//p" "$here/runs.sha256")
mapfile -t members < <("$here/launch.sh" --list)
here=$here/members/${{members[SLURM_ARRAY_TASK_ID]}}
"""

CHECK = """\
if [ ! -f "$here/launch.sh" ]; then
  say "no bundle in ${here:-the folder of this job}: submit the job.sbatch of a bundle by its path" >&2
  exit 1
fi
"""

TOPOLOGY = """\
if [ "$SLURM_JOB_NUM_NODES" != {nodes} ]; then
  say "this bundle is for {nodes} nodes, and Slurm gave $SLURM_JOB_NUM_NODES: leave --nodes out" >&2
  exit 1
fi

# A node's name, or its address in Slurm if the other nodes cannot resolve the name.
address() {{
  if getent ahosts "$1" >/dev/null 2>&1; then
    printf '%s\\n' "$1"
  else
    scontrol show node "$1" | sed -n 's/.*NodeAddr=\\([^ ]*\\).*/\\1/p'
  fi
}}
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
restarts=${{SLURM_RESTART_COUNT:-0}}
MASTER_ADDR=$(address "${{hosts[0]}}")
XPC_JOB_BUNDLE=$here
XPC_JOB_STOPPED=$own/stopped
export MASTER_ADDR XPC_JOB_BUNDLE XPC_JOB_STOPPED
if [ -n "${{SLURM_CPUS_PER_TASK:-}}" ]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
{within}"""

STEP = """\

# One task per node; its processes may use every core that the job has there.
step=(
  srun --nodes={train} --ntasks={train} --ntasks-per-node=1 --relative=0
  --wait=60 --kill-on-bad-exit=1 --cpu-bind=none --export=ALL
  {srun}bash "$script" node
)
"""

SRUN = '"${container[@]}" '
INSIDE = """\
# The container's /tmp may not be the node's, so the mark of a stopped run is in the folder of the submission.
XPC_JOB_STOPPED=$PWD/.xpc-stopped-$SLURM_JOB_ID-$restarts
trap 'rm -rf -- "$own" "$XPC_JOB_STOPPED"' EXIT
"""
PYXIS = """
# pyxis starts a container on each node with the bundle, the folder of the job and the mounts of the spec.
root=${{script%/*}}
container=(
  --container-image={image} "--container-workdir=$PWD"
  "--container-mounts=$root:$root,$PWD:$PWD{mounts}"
)
"""
APPTAINER = """
# apptainer starts a container on each node with the bundle, the folder of the job and the mounts of the spec.
root=${{script%/*}}
container=(
  apptainer exec{gpu} --pwd "$PWD" --bind "$root:$root" --bind "$PWD:$PWD"{mounts} {image}
)
"""

SERVER = """\

# The last node generates completions. Wait up to XPC_SERVER_WAIT seconds: it may have to download a model.
XPC_VLLM_HOST=$(address "${{hosts[{train}]}}")
export XPC_VLLM_HOST
serve() {{
  srun --nodes=1 --ntasks=1 --relative={train} --cpu-bind=none --export=ALL {srun}bash "$script" server &
  server=$!
  local last=$((SECONDS + ${{XPC_SERVER_WAIT:-1800}}))
  until [ -n "$stop_signal" ] || "${{PYTHON:-python3}}" "$here/trainer/vllm_server.py" --answers "$XPC_VLLM_HOST"; do
    if ! kill -0 "$server" 2>/dev/null; then
      say "the vLLM server on ${{hosts[{train}]}} ended; its message is above" >&2
      exit 1
    fi
    if ((SECONDS > last)); then
      say "the vLLM server on ${{hosts[{train}]}} did not answer within ${{XPC_SERVER_WAIT:-1800}} seconds" >&2
      exit 1
    fi
    sleep 2
  done
  say "the vLLM server runs on ${{hosts[{train}]}}"
}}
"""

WATCH = """\
  if [ -n "${server:-}" ]; then
    watch &
    watcher=$!
  fi
"""
WATCHED = """\
# If the server ends, end the training, which would wait for it forever.
watch() {
  while kill -0 "$server" 2>/dev/null; do sleep 2; done
  local child
  if read -r child <"$own/child"; then kill -s TERM "$child"; fi
}
"""

ATTEMPTS = """
# A run that failed for a temporary reason, such as a killed process or a lost connection, is retried on the same nodes.
# A run that ended with an error message, or that was asked to stop, is not.
attempts={attempts}
for ((attempt = 1; attempt <= attempts; attempt++)); do
  # Two jobs on one node get different ports; so does a job that returns to a node before its old port is free.
  MASTER_PORT=$((10000 + (SLURM_JOB_ID + 1009 * restarts + 211 * (attempt - 1)) % 20000))
  XPC_ATTEMPT="$attempt of $attempts"
  export MASTER_PORT XPC_ATTEMPT
  say "job $SLURM_JOB_ID, restart $restarts, nodes $SLURM_JOB_NODELIST, rendezvous $MASTER_ADDR:$MASTER_PORT"
"""

RUN = """\
  run "${step[@]}"
  again=false
"""

TEARDOWN = """\
  if [ "$status" != 0 ] && [ "$again" = false ] && ! kill -0 "$server" 2>/dev/null; then
    say "the vLLM server on ${hosts[-1]} ended before the training" >&2
    exit 1
  fi
  kill "$watcher" 2>/dev/null || true
  kill -s TERM "$server" 2>/dev/null || true # the end of the job ends the rest of it
"""

LOST = """\
  # A lost node ends the run on the others before Slurm notices. Test whether all nodes still start tasks.
  if [ "$status" != 0 ] && [ "$status" != 75 ] && [ -z "$stop_signal" ]; then
    timeout --kill-after=5 60 srun --nodes={nodes} --ntasks={nodes} --overlap true || again=true
  fi
  # A node that was still starting when another stopped: the highest status is its own, not that of the stop.
  if [ "$status" = 143 ]; then status=75; fi
"""

NEXT = """\
  if [ -n "$stop_signal" ] || [ "$again" = true ] || ((status != 76 && (status <= 131 || status > 200))); then break; fi
  if ((attempt < attempts)); then
    say "restarting from the newest complete checkpoint, if there is one: attempt $((attempt + 1)) of $attempts"
{wait}  fi
done
"""
WAIT = """\
    wait "$server" || true
"""

END = """\
if ((status > 200 && status < 255)); then status=$((status - 200)); fi

# Stopped early: by a signal to the job, before or after the run could save, or by one to its nodes.
if [ -n "$stop_signal" ] && [ "$status" = 138 ]; then again=true; fi
if [ -e "$XPC_JOB_STOPPED" ] || [ "$status" = 75 ]; then again=true; fi
if [ "$again" = true ]; then
  job=$(scontrol show job "$id")
  case "$job" in
    *JobState=COMPLETING*) ;; # Slurm has decided already, as for a cancelled job
    *Requeue=1*)
      say "stopped early; queued again, to resume from the newest checkpoint"
      scontrol requeue "$id" && exit 0
      ;;
    *) say "stopped early; submit it again to resume from the newest checkpoint" ;;
  esac
  exit 75
fi
exit "$status"
"""


def script(spec: Spec, name: str, pin: str, members: int = 0) -> str:
    """The script for a job with this name; with `members`, for an array of jobs, one per member of a sweep.

    `pin` is the digest of `run.sha256`; for a sweep, of the list of its members' digests.

    A sweep's script lies next to its `launch.sh`, whose `--list` prints the members one per line, in the order of the
    array; each is a bundle in `members/`.
    """
    train = spec.hardware.nodes
    served = spec.asks_server
    nodes = train + served
    head = HEAD.format(
        options="\n".join(f"#SBATCH --{one}" for one in options(spec, name, members)),
        nodes=f"{train} {'node' if train == 1 else 'nodes'}",
        server_head=" One more node runs the vLLM server." if served else "",
        ending="is queued again.\n# So is a job that loses a node."
        if requeues(spec)
        else "ends with exit\n# status 75: submit it again, and it resumes.",
    )
    start = START.replace("#watch#", WATCH if served else "")
    parts = [head, start]
    if served:
        reads = read(spec, "$XPC_JOB_BUNDLE").rstrip()
        parts += [SERVER_ROLE.format(options=server_options(spec), read=reads), WATCHED]
    parts += [BATCH, MEMBER.format(pin=pin) if members else "", CHECK]
    parts += [check("$pin" if members else pin, "$here", "job.sbatch")]
    within = container(spec)
    parts += [TOPOLOGY.format(nodes=nodes, train=train, within=INSIDE if within else ""), within]
    parts += [STEP.format(train=train, srun=SRUN if within else "")]
    parts += [SERVER.format(train=train, srun=SRUN if within else "") if served else ""]
    parts += [ATTEMPTS.format(attempts=1 + retries(spec)), "  serve\n" if served else "", RUN]
    parts += [LOST.format(nodes=nodes) if nodes > 1 else "", TEARDOWN if served else ""]
    parts += [NEXT.format(wait=WAIT if served else "")]
    return "".join([*parts, END])


def container(spec: Spec) -> str:
    """Shell lines that start the container of each node; empty without one. XP912 and XP921 check their words."""
    image = spec.get("launch.image")
    if not isinstance(image, str):
        return ""
    mounts = spec.names("launch.mounts")
    if spec.get("launch.container") == "apptainer":
        address = image if image.startswith("/") else f"docker://{image}"
        return APPTAINER.format(
            gpu="" if spec.on_cpu else " --nv",
            mounts="".join(f" --bind {shlex.quote(one)}" for one in mounts),
            image=shlex.quote(address),
        )
    return PYXIS.format(image=shlex.quote(enroot_image(image)), mounts="".join(f",{one}" for one in mounts))


def enroot_image(image: str) -> str:
    """An image in the form of pyxis, `host#name:tag`; the path of a squashed image stays."""
    host, slash, rest = image.partition("/")
    return f"{host}#{rest}" if slash and host and ("." in host or ":" in host or host == "localhost") else image


def options(spec: Spec, name: str, members: int = 0) -> list[str]:
    """The options of sbatch, without their dashes. XP850 checks the free texts among them."""
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
        words += ["exclusive", "mem=0"]  # --exclusive takes the cores, and no more memory than asked for
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
    """Cores of a node: as written, else one per process on the CPU, and eight per GPU."""
    if spec.get("launch.cpus") is not None:
        return spec.integer("launch.cpus")
    return spec.hardware.processes * (1 if spec.on_cpu else 8)


def limit(seconds: int) -> str:
    """A time in the format of sbatch, rounded up to the minutes in which Slurm counts: `1-06:30:00`."""
    minutes = -(-seconds // 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"


def lead(spec: Spec, seconds: int) -> int:
    """Seconds before the limit at which the run is asked to stop: enough for a step and a checkpoint.

    At most half of the time, and at least a minute, the resolution of Slurm's clock.
    """
    return max(SHORTEST, min(grace(spec), seconds // 2, 65535))
