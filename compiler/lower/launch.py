"""Spec to `launch.sh`. It contains no free text of the spec: values reach the program through files."""

from __future__ import annotations

from xpc.compiler.engines.environment import read
from xpc.compiler.engines.restarts import retries
from xpc.compiler.lower.shell import DRY_RUN, RUN, command, start
from xpc.compiler.spec import Spec

HEAD = """\
#!/usr/bin/env bash
# Starts this run. README.md describes it; the files next to this script contain every value that it uses.
#
#   global batch   {gbs} = {micro} {samples} x {accum} accumulation x {readers}
#   processes      {world} = {nodes} {node_word} x {processes}
#   strategy       {strategy}, {precision}, on {hardware}
#   target         {target}
#
#   ./launch.sh                          train, or resume from the newest complete checkpoint
#   ./launch.sh --preflight              check this machine against the bundle, and stop
#   ./launch.sh --dry-run                print the command, and stop
#   ./launch.sh --stage DIR [--wheels]   fetch models and rows (and packages) for machines without a network
#   ./launch.sh --help                   print this, and stop
#
# It takes no other arguments. Read from the environment:
#
{variables}#
# Exit status: 0 trained, now or before; 1 an error, with a message; 2 used wrongly; 75 asked to stop; 76, 128 and more:
# a process, or something that it needs, was lost. After 75, 76 and 128 the same command resumes.
"""

VARIABLES = {
    "PYTHON": "the interpreter of the run (python3)",
    "XPC_STAGED": "a folder filled by --stage: models and rows are read from it instead of the hub",
    "XPC_DATA_ROOT": "the first place to look for data files and model folders that are not in the bundle",
    "XPC_RETRIES": "how often a run that has lost a process is restarted ({retries})",
    "NODE_RANK": "the number of this node, 0 to {last}",
    "MASTER_ADDR": "the address of node 0, a name or a number",
    "MASTER_PORT": "a free port of node 0{found}",
    "XPC_NODE_WAIT": "seconds that the nodes wait for each other (300)",
    "XPC_VLLM_HOST": "the host of the vLLM server (this machine)",
    "OMP_NUM_THREADS": "threads of a process ({threads})",
    "PYTORCH_ALLOC_CONF": "settings of torch's GPU allocator (expandable_segments:True)",
}
"""Descriptions of the variables that the script reads, in the order of the head."""

LAUNCHER = '"$python" "$here/trainer/launcher.py" '

FLAGS = {"--dry-run": "dry_run", "--preflight": "only_preflight", "--stage": "only_stage"}
STAGE = """
if [ "$only_stage" = true ]; then
  exec "$python" "$here/stage.py" "${@:2}"
fi
"""

FREE_PORT = """
# accelerate 1.4 would use port 29500 for every run of a machine. Choose one below those that the system assigns.
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
# {nodes} machines: the same script runs on each, with its own NODE_RANK.
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
# Seconds that the nodes wait for each other, in the preflight and at the start of the run.
wait=${{XPC_NODE_WAIT:-300}}
number XPC_NODE_WAIT "$wait"
"""

RETRIES = """
# How often a run is restarted from its newest checkpoint after a process died. One that ends with an error is not.
export XPC_RETRIES="${{XPC_RETRIES:-{retries}}}"
number XPC_RETRIES "$XPC_RETRIES"
"""

C10D = """
# Node 0 hosts the rendezvous, whatever its host name is; torch decides which node gets rank 0.
is_host=false
if [ "$NODE_RANK" -eq 0 ]; then
  is_host=true
fi
"""

SEVERAL_CPU = """
# One thread per process; set more if the machine has more cores than processes.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
"""
ONE_CPU = """
# Every core; if unset, accelerate would choose a number and warn.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(nproc)}"
"""

SEGMENTS = """
# Growing segments leave fewer gaps in a GPU's memory if the rows have many lengths.
if [ -z "${PYTORCH_ALLOC_CONF:-}${PYTORCH_CUDA_ALLOC_CONF:-}" ]; then
    export PYTORCH_ALLOC_CONF=expandable_segments:True
fi
"""

PREFLIGHT = """
# All checks in one plain process; before a launch the launcher itself runs them.
if [ "$only_preflight" = true ]; then
  exec "$python" "$here/trainer/main.py" --preflight
fi
"""


def launch(spec: Spec) -> str:
    """The script. It works from any folder: it finds the bundle next to itself and writes to the caller's folder."""
    hardware, multi = spec.hardware, spec.hardware.nodes > 1
    distributed = hardware.world > 1
    torchrun = spec.text("launch.launcher") == "torchrun"
    group = distributed or spec.zero_stage > 0  # DeepSpeed also makes a process group for one process
    again = retries(spec)
    ported = group and not (torchrun and not multi)
    shown = {
        "XPC_RETRIES": again,
        "NODE_RANK": multi,
        "MASTER_ADDR": multi,
        "MASTER_PORT": ported,
        "XPC_NODE_WAIT": multi,
        "XPC_VLLM_HOST": spec.asks_server,
        "OMP_NUM_THREADS": spec.on_cpu,
        "PYTORCH_ALLOC_CONF": _has_growing_segments(spec),
    }
    facts = {
        "retries": again,
        "last": hardware.nodes - 1,
        "found": "" if multi else " (found if unset)",
        "threads": 1 if distributed else "all cores",
    }
    parts = [
        HEAD.format(
            gbs=spec.integer("batch.gbs"),
            micro=spec.integer("batch.micro"),
            samples=spec.method.counts,
            accum=spec.integer("batch.accum"),
            readers=batch_readers(spec),
            world=hardware.world,
            nodes=hardware.nodes,
            node_word="node" if hardware.nodes == 1 else "nodes",
            processes=hardware.processes,
            strategy=spec.text("strategy"),
            precision=spec.text("precision"),
            hardware=spec.text("hardware"),
            target=spec.stack.name,
            variables="".join(
                f"#   {name:18}   {text.format_map(facts)}\n"
                for name, text in VARIABLES.items()
                if shown.get(name, True)
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
    # accelerate 1.15 finds a free port for 0, accelerate 1.4 would wait forever; torchrun's --standalone needs none.
    # With several nodes the script has checked that MASTER_PORT is set.
    if ported:
        finds = bool(spec.stack.facts.fsdp2)
        if not (finds or multi):
            parts.append(FREE_PORT)
        parts.append(PORT.format(port="" if multi else "0" if finds else "$(free_port)"))
    if multi and spec.text("launch.rendezvous") == "c10d":
        parts.append(C10D)
    if spec.on_cpu:
        parts.append(SEVERAL_CPU if distributed else ONE_CPU)
    elif _has_growing_segments(spec):
        parts.append(SEGMENTS)
    parts.append(_torchrun(spec, multi) if torchrun else _accelerate(spec, multi, group))
    return "".join([*parts, DRY_RUN, PREFLIGHT, RUN])


def _has_growing_segments(spec: Spec) -> bool:
    """Whether allocator segments may grow. vLLM shares memory between processes and offloads it; neither works then."""
    return not (spec.on_cpu or spec.flag("method.vllm"))


def environment(spec: Spec) -> str:
    """Lines that read `environment.sh`, and then look for python3: it may activate a virtual environment."""
    lines = read(spec, "$here")
    return f"{lines}python=${{PYTHON:-python3}}\n" if lines else ""


def batch_readers(spec: Spec) -> str:
    """The readers of separate micro-batches: processes, or groups of processes that share a sequence."""
    if spec.context_parallel == 1:
        return f"{spec.hardware.world} processes"
    return f"{spec.replicas} groups of {spec.context_parallel} processes that share a sequence"


# trainer/launcher.py runs the launcher's module as `python -m` does, and reports in one line how a failed run ended.
def _accelerate(spec: Spec, multi: bool, group: bool) -> str:
    words = [LAUNCHER + "accelerate.commands.launch", '--config_file "$here/accelerate.yaml"']
    if group:
        words.append('--main_process_port "$port"')
    if multi:
        words.append('--machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR"')
        words.append(_rendezvous_timeout(spec))
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
        words.append(_rendezvous_timeout(spec))
    else:
        words.append("--standalone")
    return command(words, "main.py")


def _rendezvous_timeout(spec: Spec) -> str:
    """How long the launchers wait for each other: by default torch waits 15 minutes (launcher/api.py), c10d ten.

    c10d would find the host of its store by the machine's name, which may not resolve, so `is_host` names it.
    """
    if spec.text("launch.rendezvous") == "c10d":
        return '--rdzv_conf "is_host=$is_host,join_timeout=$wait"'
    return '--rdzv_conf "timeout=$wait"'
