"""Spec to `launch.sh`. No free text of the spec ever stands in it: values reach the program through files."""

from __future__ import annotations

from xpc.compiler.engines.environment import read
from xpc.compiler.engines.restarts import retries
from xpc.compiler.lower.shell import DRY_RUN, RUN, command, start
from xpc.compiler.spec import Spec

HEAD = """\
#!/usr/bin/env bash
# Starts this run. README.md says what it trains; the files beside this script hold every value that it uses.
#
#   global batch   {gbs} = {micro} {samples} x {accum} accumulation x {readers}
#   processes      {world} = {nodes} {node_word} x {processes}
#   strategy       {strategy}, {precision}, on {hardware}
#   target         {target}
#
#   ./launch.sh                          train, or go on from the newest complete checkpoint
#   ./launch.sh --preflight              check this machine against the bundle, and stop
#   ./launch.sh --dry-run                print the command, and stop
#   ./launch.sh --stage DIR [--wheels]   fetch models and rows (and packages) for machines without a network
#   ./launch.sh --help                   print this, and stop
#
# Nothing else is accepted. Read from the environment:
#
{variables}#
# Exit status: 0 trained, now or before; 75 asked to stop, the same command goes on; 1 something is wrong, and a message
# says what; 2 used wrongly; 76, 128 and more: a process was lost, or what it needs, and the same command goes on.
"""

VARIABLES = {
    "PYTHON": "the interpreter of the run (python3)",
    "XPC_STAGED": "a folder that --stage has filled: models and rows are read from there, and no hub is asked",
    "XPC_DATA_ROOT": "where data files and model folders that are not in the bundle are looked for first",
    "XPC_RETRIES": "how often a run that has lost a process is started again ({retries})",
    "NODE_RANK": "the number of this node, 0 to {last}",
    "MASTER_ADDR": "the address of node 0, a name or a number",
    "MASTER_PORT": "a port of node 0 that is free{found}",
    "XPC_NODE_WAIT": "seconds that the nodes wait for each other (300)",
    "XPC_VLLM_HOST": "the host of the vLLM server (this machine)",
    "OMP_NUM_THREADS": "threads of a process ({threads})",
    "PYTORCH_ALLOC_CONF": "settings of torch's memory of GPUs (expandable_segments:True)",
}
"""What the head says of the variables that a script reads, in this order."""

LAUNCHER = '"$python" "$here/trainer/launcher.py" '

FLAGS = {"--dry-run": "dry_run", "--preflight": "only_preflight", "--stage": "only_stage"}
STAGE = """
if [ "$only_stage" = true ]; then
  exec "$python" "$here/stage.py" "${@:2}"
fi
"""

FREE_PORT = """
# accelerate 1.4 would take 29500 for every run of a machine; below the ports that the system hands out itself.
free_port() {
  local port
  for _ in {1..50}; do
    port=$((10000 + RANDOM % 20000))
    if ! (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null; then
      break
    fi
  done
  echo "$port"
}
"""

NUMBER = """
number() {
  case "$2" in
    *[!0-9]* | "")
      printf 'launch.sh: %s must be a number, not %q\\n' "$1" "$2" >&2
      exit 2
      ;;
  esac
}
"""

PORT = """
port=${{MASTER_PORT:-{port}}}
number MASTER_PORT "$port"
"""

NODES = """
# {nodes} machines: the same script runs on each, told apart by NODE_RANK.
: "${{NODE_RANK:?this run has {nodes} nodes: set NODE_RANK (0 to {last}), MASTER_ADDR and MASTER_PORT}}"
: "${{MASTER_ADDR:?this run has {nodes} nodes: set MASTER_ADDR to the address of node 0}}"
: "${{MASTER_PORT:?this run has {nodes} nodes: set MASTER_PORT to a free port of node 0}}"
number NODE_RANK "$NODE_RANK"
case "$MASTER_ADDR" in
  -* | *[!0-9A-Za-z.:_-]*)
    printf 'launch.sh: MASTER_ADDR must be a host, not %q\\n' "$MASTER_ADDR" >&2
    exit 2
    ;;
esac
# Seconds that the nodes wait for each other, in the preflight and when the run begins.
wait=${{XPC_NODE_WAIT:-300}}
number XPC_NODE_WAIT "$wait"
"""

RETRIES = """
# Times that a run is started again whose process has died, from its newest checkpoint; not one that says what is wrong.
export XPC_RETRIES="${{XPC_RETRIES:-{retries}}}"
number XPC_RETRIES "$XPC_RETRIES"
"""

C10D = """
# Node 0 holds the rendezvous, whatever the machines call themselves; who of them gets rank 0 torch decides.
holds=false
if [ "$NODE_RANK" -eq 0 ]; then
  holds=true
fi
"""

SEVERAL_CPU = """
# One thread a process; more is for machines with more cores than processes.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
"""
ONE_CPU = """
# Every core; unset, accelerate would choose a number and warn of it.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(nproc)}"
"""

SEGMENTS = """
# Segments that grow leave fewer gaps in a GPU's memory where rows have many lengths.
if [ -z "${PYTORCH_ALLOC_CONF:-}${PYTORCH_CUDA_ALLOC_CONF:-}" ]; then
    export PYTORCH_ALLOC_CONF=expandable_segments:True
fi
"""

PREFLIGHT = """
# All checks in one plain process; the launcher makes those before a launch itself.
if [ "$only_preflight" = true ]; then
  exec "$python" "$here/trainer/main.py" --preflight
fi
"""


def launch(spec: Spec) -> str:
    """The script. It works from any folder: the bundle lies beside it, the output goes to the caller's folder."""
    hardware, multi = spec.hardware, spec.hardware.nodes > 1
    distributed = hardware.world > 1
    torchrun = spec.text("launch.launcher") == "torchrun"
    group = distributed or spec.zero_stage > 0  # DeepSpeed makes a process group of one, too
    again = retries(spec)
    ported = group and not (torchrun and not multi)
    asked = {
        "XPC_RETRIES": again,
        "NODE_RANK": multi,
        "MASTER_ADDR": multi,
        "MASTER_PORT": ported,
        "XPC_NODE_WAIT": multi,
        "XPC_VLLM_HOST": spec.asks_server,
        "OMP_NUM_THREADS": spec.on_cpu,
        "PYTORCH_ALLOC_CONF": _segmented(spec),
    }
    said = {
        "retries": again,
        "last": hardware.nodes - 1,
        "found": "" if multi else " (found where none is named)",
        "threads": 1 if distributed else "all cores",
    }
    parts = [
        HEAD.format(
            gbs=spec.integer("batch.gbs"),
            micro=spec.integer("batch.micro"),
            samples=spec.method.counts,
            accum=spec.integer("batch.accum"),
            readers=readers(spec),
            world=hardware.world,
            nodes=hardware.nodes,
            node_word="node" if hardware.nodes == 1 else "nodes",
            processes=hardware.processes,
            strategy=spec.text("strategy"),
            precision=spec.text("precision"),
            hardware=spec.text("hardware"),
            target=spec.stack.name,
            variables="".join(
                f"#   {name:18}   {told.format_map(said)}\n"
                for name, told in VARIABLES.items()
                if asked.get(name, True)
            ),
        ),
        start("launch.sh", "trained", FLAGS, "--stage"),
    ]
    parts += [environment(spec), STAGE]
    if multi or ported or again:
        parts.append(NUMBER)
    if again:
        parts.append(RETRIES.format(retries=again))
    if multi:
        parts.append(NODES.format(nodes=hardware.nodes, last=hardware.nodes - 1))
    # accelerate 1.15 finds a free port for 0, accelerate 1.4 would wait for ever; torchrun's --standalone needs none.
    # Several nodes have checked that MASTER_PORT is set.
    if ported:
        finds = bool(spec.stack.facts.fsdp2)
        if not (finds or multi):
            parts.append(FREE_PORT)
        parts.append(PORT.format(port="" if multi else "0" if finds else "$(free_port)"))
    if multi and spec.text("launch.rendezvous") == "c10d":
        parts.append(C10D)
    if spec.on_cpu:
        parts.append(SEVERAL_CPU if distributed else ONE_CPU)
    elif _segmented(spec):
        parts.append(SEGMENTS)
    parts.append(_torchrun(spec, multi) if torchrun else _accelerate(spec, multi, group))
    return "".join([*parts, DRY_RUN, PREFLIGHT, RUN])


def _segmented(spec: Spec) -> bool:
    """Whether segments may grow: vLLM shares memory between processes and puts it to sleep, and neither can grow."""
    return not (spec.on_cpu or spec.flag("method.vllm"))


def environment(spec: Spec) -> str:
    """What reads `environment.sh`; a virtual environment that it activates is then where python3 is looked for."""
    lines = read(spec, "$here")
    return f"{lines}python=${{PYTHON:-python3}}\n" if lines else ""


def readers(spec: Spec) -> str:
    """Who reads a micro-batch of its own: every process, or every group of processes that share a sequence."""
    if spec.context_parallel == 1:
        return f"{spec.hardware.world} processes"
    return f"{spec.replicas} groups of {spec.context_parallel} processes that share a sequence"


# trainer/launcher.py runs the launcher's module as `python -m` does, and says in one line how a failed run ended.
def _accelerate(spec: Spec, multi: bool, group: bool) -> str:
    words = [LAUNCHER + "accelerate.commands.launch", '--config_file "$here/accelerate.yaml"']
    if group:
        words.append('--main_process_port "$port"')
    if multi:
        words.append('--machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR"')
        words.append(_patience(spec))
    return command(words, "main.py")


def _torchrun(spec: Spec, multi: bool) -> str:
    words = [LAUNCHER + "torch.distributed.run", f"--nproc_per_node {spec.hardware.processes}"]
    if multi:
        if spec.text("launch.rendezvous") == "c10d":
            words.append(f"--nnodes {spec.hardware.nodes} --rdzv_id xpc --rdzv_backend c10d")
            words.append('--rdzv_endpoint "$MASTER_ADDR:$port"')
        else:
            words.append(f'--nnodes {spec.hardware.nodes} --node_rank "$NODE_RANK"')
            words.append('--master_addr "$MASTER_ADDR" --master_port "$port"')
        words.append(_patience(spec))
    else:
        words.append("--standalone")
    return command(words, "main.py")


def _patience(spec: Spec) -> str:
    """How long the launchers wait for each other: torch would wait 15 minutes (launcher/api.py), c10d for ten.

    c10d finds out who holds its store by the machine's name, which need not resolve: it is told.
    """
    if spec.text("launch.rendezvous") == "c10d":
        return '--rdzv_conf "is_host=$holds,join_timeout=$wait"'
    return '--rdzv_conf "timeout=$wait"'
