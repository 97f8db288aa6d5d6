"""Write `launch.sh`. Free texts of the spec are never a part of the script; programs read the values of settings from
files.
"""

from __future__ import annotations

from xpc.compiler.engines.environment import read
from xpc.compiler.engines.restarts import retries
from xpc.compiler.lower.shell import RUN, command, shared, start
from xpc.compiler.spec import Spec
from xpc.grammar.package_data import read_sections

VARIABLES = {
    "PYTHON": "the interpreter of the run (python3)",
    "XPC_STAGED": "a folder filled by --stage: models and rows are read from it instead of the hub",
    "XPC_PREPARED": "a folder filled by --prepare: prepared rows of this run are read from it",
    "XPC_REHEARSE": "if set, every launch rehearses first, as with --rehearse",
    "XPC_DATA_ROOT": "the first place to look for data files and model folders that are not in the bundle",
    "XPC_RETRIES": "how often a run that has lost a process is restarted ({retries})",
    "NODE_RANK": "the number of this node, 0 to {last}",
    "MASTER_ADDR": "the address of node 0, a host name or an IP address",
    "MASTER_PORT": "a free port of node 0{found}",
    "XPC_NODE_WAIT": "seconds that the nodes wait for each other (300)",
    "XPC_VLLM_HOST": "the host of the vLLM server (this machine)",
    "OMP_NUM_THREADS": "threads of a process ({threads})",
    "OMP_WAIT_POLICY": "whether waiting threads spin (ACTIVE) or sleep (PASSIVE)",
    "TORCH_EXTENSIONS_DIR": "torch's compiled extensions; a lock here may stop a run (~/.cache/torch_extensions)",
    "PYTORCH_ALLOC_CONF": "settings of torch's GPU allocator (expandable_segments:True)",
}
"""Maps each environment variable that launch.sh reads to its description. The comment at the beginning of launch.sh
lists them in this order.
"""

LAUNCHER = '"$python" "$here/trainer/launcher.py" '

FLAGS = {
    "--dry-run": "dry_run",
    "--preflight": "only_preflight",
    "--prepare": "only_prepare",
    "--rehearse": "rehearse",
    "--stage": "only_stage",
}


def launch(spec: Spec) -> str:
    """The text of `launch.sh`, which the user may call from any folder. The script reads the files in its own folder,
    and writes to the folder from which it is called.
    """
    hardware, multi = spec.hardware, spec.hardware.nodes > 1
    distributed = hardware.world > 1
    torchrun = spec.text("launch.launcher") == "torchrun"
    group = distributed or spec.zero_stage > 0  # DeepSpeed needs a process group even for a single process
    again = retries(spec)
    ported = group and not (torchrun and not multi)
    shell = read_sections(__file__, "launch.sh")
    parts = [
        shell["head"].format(
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
            variables=_variables(spec, again, ported),
        ),
        start("launch.sh", "trained", FLAGS, ("--prepare", "--stage")),
    ]
    parts += [environment(spec), shell["stage"], shell["rehearse"], shell["ranks"], shell["number"]]
    if again:
        parts.append(shell["retries"].format(retries=again))
    if multi:
        parts.append(shell["nodes"].format(nodes=hardware.nodes, last=hardware.nodes - 1))
    # With port 0, accelerate 1.15 looks for a free port, but accelerate 1.4 waits forever. `torchrun --standalone`
    # needs no port. For a run on several nodes, the script has already checked that MASTER_PORT is set.
    if ported:
        finds = bool(spec.stack.facts.fsdp2)
        if not (finds or multi):
            parts.append(shell["free_port"])
        parts.append(shell["port"].format(port="" if multi else "0" if finds else "$(free_port)"))
    if multi and spec.text("launch.rendezvous") == "c10d":
        parts.append(shell["c10d"])
    if spec.on_cpu:
        parts.append(shell["several_cpu" if distributed else "one_cpu"])
    elif _has_growing_segments(spec):
        parts.append(shell["segments"])
    parts.append(_torchrun(spec, multi) if torchrun else _accelerate(spec, multi, group))
    parts.append(shared()["dry_run"])
    if spec.zero_stage > 0:
        parts.append(shell["locks"])
    return "".join([*parts, shell["preflight"], RUN])


def _variables(spec: Spec, again: int, ported: bool) -> str:
    """The comments of the script about the environment variables that this run reads."""
    multi = spec.hardware.nodes > 1
    shown = {
        "XPC_RETRIES": again,
        "NODE_RANK": multi,
        "MASTER_ADDR": multi,
        "MASTER_PORT": ported,
        "XPC_NODE_WAIT": multi,
        "XPC_VLLM_HOST": spec.asks_server,
        "OMP_NUM_THREADS": spec.on_cpu,
        "OMP_WAIT_POLICY": spec.on_cpu,
        "TORCH_EXTENSIONS_DIR": spec.zero_stage > 0,
        "PYTORCH_ALLOC_CONF": _has_growing_segments(spec),
    }
    facts = {
        "retries": again,
        "last": spec.hardware.nodes - 1,
        "found": "" if multi else " (found if unset)",
        "threads": 1 if spec.hardware.world > 1 else "all cores",
    }
    return "".join(
        f"#   {name:20} {text.format_map(facts)}\n" for name, text in VARIABLES.items() if shown.get(name, True)
    )


def _has_growing_segments(spec: Spec) -> bool:
    """Whether torch's allocator may use expandable segments. A vLLM in the same process does not support such segments,
    because it offloads its memory and shares it with other processes.
    """
    return not (spec.on_cpu or spec.flag("method.vllm"))


def environment(spec: Spec) -> str:
    """Shell lines that source `environment.sh`, and then look for python3. The order matters: `environment.sh` may
    activate a virtual environment, which changes python3.
    """
    lines = read(spec, "$here")
    return f"{lines}python=${{PYTHON:-python3}}\n" if lines else ""


def batch_readers(spec: Spec) -> str:
    """A phrase for the number of micro-batches in parallel: `8 processes`, or `4 groups of 2 processes that share a
    sequence`.
    """
    if spec.context_parallel == 1:
        return f"{spec.hardware.world} processes"
    return f"{spec.replicas} groups of {spec.context_parallel} processes that share a sequence"


# trainer/launcher.py runs a module such as accelerate.commands.launch, as `python -m` would. If the run fails,
# trainer/launcher.py reports this in one line.
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
    """Options that limit how long a node waits for the other nodes at the start. torch's default is 15 minutes
    (launcher/api.py), or ten minutes with c10d.

    `is_host` tells c10d whether this node hosts c10d's store. Without `is_host`, c10d looks up the address of the
    machine's name to find this out, and some names have no address.
    """
    if spec.text("launch.rendezvous") == "c10d":
        return '--rdzv_conf "is_host=$is_host,join_timeout=$wait"'
    return '--rdzv_conf "timeout=$wait"'
