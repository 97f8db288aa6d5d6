"""Spec to `job.sbatch`: the job that starts launch.sh on each node of a Slurm cluster.

`#SBATCH` lines are read before any shell, so that what stands in them is checked by rules (XP850, XP920); the script
below them holds no text of the spec but an image and its mounts (XP912, XP921). Slurm is asked for the rest at the job.
"""

from __future__ import annotations

import shlex

from xpc.compiler.engines.environment import read
from xpc.compiler.engines.pin import check
from xpc.compiler.engines.restarts import grace, requeues, retries
from xpc.compiler.engines.vllm_server import server_options
from xpc.compiler.spec import Spec

SHORTEST = 60
"""Seconds before the limit that Slurm can still be asked for a signal; its clock counts minutes."""

HEAD = """\
#!/usr/bin/env bash
{options}
# Starts launch.sh on {nodes} of a Slurm cluster.{server_head}
#
#   sbatch job.sbatch                        submit; relative folders of the run begin where this is typed
#   sbatch --qos=high --mem=200G job.sbatch  the same; options of sbatch go before the lines above
#
# The environment goes along: activate the virtual environment first, or set PYTHON. The bundle, the data and the output
# lie in folders that every node sees.
#
# A job that is asked to stop (near its limit, or for another job) saves a checkpoint, and {ending}
"""

START = """\
set -euo pipefail

if [ -z "${SLURM_JOB_ID:-}" ]; then
  echo "job.sbatch: this is a job for Slurm: sbatch job.sbatch" >&2
  exit 2
fi
say() { printf 'job.sbatch: %s\\n' "$*"; }

# Runs a command to its end, hands USR1 and TERM on to it as USR1, and leaves its exit status in $status. USR1, because
# srun kills the tasks at a TERM of its own. A shell waits in the foreground for it: when a signal ends the `wait` for a
# command that ends at that moment, bash may lose its status.
asked="" own=""
# shellcheck disable=SC2317,SC2329 # the traps call it
pass_on() {
  local child
  asked=${asked:-$1}
  if { read -r child <"$own/child"; } 2>/dev/null; then kill -s USR1 "$child" 2>/dev/null || true; fi
}
trap 'pass_on USR1' USR1
trap 'pass_on TERM' TERM
run() {
  status=138
  if [ -n "$asked" ]; then return; fi
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

# Behind the traps: of a node that a signal ends, srun tells the signal, and not another node's failure behind it.
own=$(mktemp -d)
trap 'rm -rf -- "$own"' EXIT

# What each node does: srun starts this script again on each, from the bundle. It gives the highest status of all nodes,
# and ends the others at the first that is not 0, by a TERM that the run answers like any other.
if [ "${1:-}" = node ]; then
  export NODE_RANK=$SLURM_NODEID XPC_RETRIES=0 # the batch shell tries again, on all nodes
  # Kernels are compiled once a job and node: a folder that several nodes share makes them wait for each other.
  export TRITON_CACHE_DIR=${TRITON_CACHE_DIR:-$own/triton}
  run "$XPC_JOB_BUNDLE/launch.sh"
  # 138 and 143: the signal came before the run could answer it. 143 else is for a node whose shell it came before.
  if [ -n "$asked" ] && { [ "$status" = 138 ] || [ "$status" = 143 ]; }; then status=75; fi
  if [ "$status" = 143 ]; then status=137; fi
  # A node that is slow to begin could not answer yet to the TERM that a failure brings it.
  if [ "$status" != 0 ] && [ "$status" != 75 ] && ((SECONDS < 5)); then sleep $((5 - SECONDS)) || true; fi
  if [ "$status" = 75 ] && [ "$asked" = USR1 ]; then
    # Asked through the batch shell, which runs on the first node, too, and learns of it there.
    if [ "$NODE_RANK" = 0 ]; then touch "$XPC_JOB_STOPPED"; fi
    exit 0
  fi
  # Asked by Slurm: the others leave first. A failure counts for more than the 75 of the others.
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
# The batch shell, on the first node. Slurm runs a copy of this script, so that its place is asked for. Of an array, the
# number of its last task alone would name the whole of it.
id=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
id=${id:-$SLURM_JOB_ID}
job=$(scontrol show job "$id")
script=$(sed -n '/^ *Command=/{s///p;q;}' <<<"$job")
if [ -n "$script" ]; then script=$(realpath -ms -- "$script"); fi # as it was typed: a container mounts whole paths
here=${script%/*}
"""

MEMBER = """\
if ! printf '%s  %s\\n' {pin} "$here/runs.sha256" | sha256sum --check --status; then
  say "the sweep in $here is another than the one that was submitted: submit it anew" >&2
  exit 1
fi
pin=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))s/ .*//p" "$here/runs.sha256")
mapfile -t members < <("$here/launch.sh" --list)
here=$here/members/${{members[SLURM_ARRAY_TASK_ID]}}
"""

CHECK = """\
if [ ! -f "$here/launch.sh" ]; then
  say "no bundle in ${here:-the place of this job}: submit the file job.sbatch of a bundle, by its path" >&2
  exit 1
fi
"""

TOPOLOGY = """\
if [ "$SLURM_JOB_NUM_NODES" != {nodes} ]; then
  say "this bundle is for {nodes} nodes, and Slurm gave $SLURM_JOB_NUM_NODES: leave --nodes out" >&2
  exit 1
fi

# A node's name, or its address as Slurm knows it where the name means nothing to the others.
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

# One task a node; the processes of a node may use every core that the job has there.
step=(
  srun --nodes={train} --ntasks={train} --ntasks-per-node=1 --relative=0
  --wait=60 --kill-on-bad-exit=1 --cpu-bind=none --export=ALL
  {srun}bash "$script" node
)
"""

SRUN = '"${container[@]}" '
INSIDE = """\
# The container's /tmp need not be the node's: the note that the run was stopped lies where the job was submitted.
XPC_JOB_STOPPED=$PWD/.xpc-stopped-$SLURM_JOB_ID-$restarts
trap 'rm -rf -- "$own" "$XPC_JOB_STOPPED"' EXIT
"""
PYXIS = """
# By pyxis: a container on each node, which sees the bundle, the folder of the job and what the spec mounts.
root=${{script%/*}}
container=(
  --container-image={image} "--container-workdir=$PWD"
  "--container-mounts=$root:$root,$PWD:$PWD{mounts}"
)
"""
APPTAINER = """
# By apptainer: a container on each node, which sees the bundle, the folder of the job and what the spec mounts.
root=${{script%/*}}
container=(
  apptainer exec{gpu} --pwd "$PWD" --bind "$root:$root" --bind "$PWD:$PWD"{mounts} {image}
)
"""

SERVER = """\

# The last node generates. It is waited for XPC_SERVER_WAIT seconds at most: it may have a model to download.
XPC_VLLM_HOST=$(address "${{hosts[{train}]}}")
export XPC_VLLM_HOST
serve() {{
  srun --nodes=1 --ntasks=1 --relative={train} --cpu-bind=none --export=ALL {srun}bash "$script" server &
  server=$!
  local last=$((SECONDS + ${{XPC_SERVER_WAIT:-1800}}))
  until [ -n "$asked" ] || "${{PYTHON:-python3}}" "$here/trainer/vllm_server.py" --answers "$XPC_VLLM_HOST"; do
    if ! kill -0 "$server" 2>/dev/null; then
      say "the vLLM server on ${{hosts[{train}]}} ended; its message stands above" >&2
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
# A server that ends takes the training with it, which would wait for it in vain.
watch() {
  while kill -0 "$server" 2>/dev/null; do sleep 2; done
  local child
  if read -r child <"$own/child"; then kill -s TERM "$child"; fi
}
"""

ATTEMPTS = """
# What failed for a reason that may pass is tried again on the same nodes: a process that was killed, a connection that
# was lost. Not a run that said what is wrong, or that was asked to stop.
attempts={attempts}
for ((attempt = 1; attempt <= attempts; attempt++)); do
  # Two jobs on one node have two ports; so has a job that comes back to a node before its last port is free.
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
  kill -s TERM "$server" 2>/dev/null || true # the end of the job ends what is left of it
"""

LOST = """\
  # A node that is lost ends the run on the others before Slurm notices. It starts no task any more.
  if [ "$status" != 0 ] && [ "$status" != 75 ] && [ -z "$asked" ]; then
    timeout --kill-after=5 60 srun --nodes={nodes} --ntasks={nodes} --overlap true || again=true
  fi
  # A node so slow to begin that the stop of another ended it: the highest status is that node's, not the stop's.
  if [ "$status" = 143 ]; then status=75; fi
"""

NEXT = """\
  if [ -n "$asked" ] || [ "$again" = true ] || ((status != 76 && (status <= 131 || status > 200))); then break; fi
  if ((attempt < attempts)); then
    say "started again, from the newest complete checkpoint where there is one: attempt $((attempt + 1)) of $attempts"
{wait}  fi
done
"""
WAIT = """\
    wait "$server" || true
"""

END = """\
if ((status > 200 && status < 255)); then status=$((status - 200)); fi

# Stopped before its end: by a signal to the job, in answer to which the run saved or before it could, or to its nodes.
if [ -e "$XPC_JOB_STOPPED" ] || [ "$status" = 75 ] || { [ -n "$asked" ] && [ "$status" = 138 ]; }; then again=true; fi
if [ "$again" = true ]; then
  job=$(scontrol show job "$id")
  case "$job" in
    *JobState=COMPLETING*) ;; # Slurm has decided already, as of a job that is cancelled
    *Requeue=1*)
      say "stopped before its end; queued again, to go on from the newest checkpoint"
      scontrol requeue "$id" && exit 0
      ;;
    *) say "stopped before its end; submit it again to go on from the newest checkpoint" ;;
  esac
  exit 75
fi
exit "$status"
"""


def script(spec: Spec, name: str, pin: str, members: int = 0) -> str:
    """The script, for a job of this name; of a sweep with so many members, an array of jobs.

    `pin` is the digest of what runs, of a sweep that of the list of its members' digests.

    A sweep's script lies beside its `launch.sh`, whose `--list` names the members one a line, in the order of the
    array; each is a bundle in `members/`.
    """
    train = spec.hardware.nodes
    served = spec.asks_server
    nodes = train + served
    head = HEAD.format(
        options="\n".join(f"#SBATCH --{one}" for one in options(spec, name, members)),
        nodes=f"{train} {'node' if train == 1 else 'nodes'}",
        server_head=" One more runs the vLLM server." if served else "",
        ending="is queued again.\n# So is one that loses a node."
        if requeues(spec)
        else "ends with exit\n# status 75: submit it again, and it goes on.",
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
    """What starts the container of each node; empty without one. XP912 and XP921 say what its words may be."""
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
    return PYXIS.format(image=shlex.quote(of_enroot(image)), mounts="".join(f",{one}" for one in mounts))


def of_enroot(image: str) -> str:
    """An image as pyxis takes it: `host#name:tag`; a path of a squashed one stays."""
    host, slash, rest = image.partition("/")
    return f"{host}#{rest}" if slash and host and ("." in host or ":" in host or host == "localhost") else image


def options(spec: Spec, name: str, members: int = 0) -> list[str]:
    """The words of `sbatch`, without their dashes. Free texts among them are those that XP850 lets through."""
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
        asked = spec.get(path)
        words += [] if asked is None else [f"{path.rpartition('.')[2]}={asked}"]
    time = spec.get("launch.time")
    if isinstance(time, int):
        words += [f"time={limit(time)}", f"signal=B:USR1@{lead(spec, time)}"]
    words.append("requeue" if requeues(spec) else "no-requeue")
    words += [one.removeprefix("--") for one in spec.names("launch.extra_args")]
    return [*words, "open-mode=append", f"output={log}.log", f"error={log}.log"]


def cores(spec: Spec) -> int:
    """Cores of a node: as written, else one for each process on the CPU, and eight, which nodes have, for each GPU."""
    if spec.get("launch.cpus") is not None:
        return spec.integer("launch.cpus")
    return spec.hardware.processes * (1 if spec.on_cpu else 8)


def limit(seconds: int) -> str:
    """A time as sbatch reads it, in whole minutes, which is how Slurm counts: `1-06:30:00`."""
    minutes = -(-seconds // 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"


def lead(spec: Spec, seconds: int) -> int:
    """Seconds before the limit at which the run is asked to stop: enough for a step and a checkpoint.

    At most half of the time, and never less than a minute, the resolution of Slurm's clock.
    """
    return max(SHORTEST, min(grace(spec), seconds // 2, 65535))
