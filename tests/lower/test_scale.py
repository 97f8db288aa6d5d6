"""From 1 to 1,024 GPUs, all files of a bundle have the same number of nodes, of processes and of sequences per step."""

import json
import re

import pytest
import yaml
from case_support import spec
from compile_support import checked, compiled, errors, only, shown
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

MOST = 1024
QUICK = settings(max_examples=80)
NODES = st.one_of(st.sampled_from((1, 2, 4, 8, 16, 32, 64, 128)), st.integers(1, MOST))
GPUS = st.one_of(st.sampled_from((1, 2, 4, 8)), st.integers(1, 16))
STRATEGIES = st.sampled_from(("ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp"))
ENGINES = {
    "local": "",
    "torchrun": "launch local(launcher=torchrun)",
    "slurm": "launch slurm(time=1d)",
    "k8s": 'launch k8s(volume=runs, image="me/stack:1")',
    "sky": "launch sky(volume=runs)",
    "ray": 'launch ray(volume="/mnt/runs")',
}
SHARED = ("fsdp", "hsdp")


def written(nodes, gpus, micro, accum, strategy, engine, *more, readers=None):
    world = nodes * gpus
    gbs = micro * accum * (readers or world)
    return spec(
        f"nodes {nodes}",
        ENGINES[engine],
        *more,
        hardware=f"{gpus} x h100-80gb",
        strategy=strategy,
        batch=f"gbs={gbs} micro={micro}",
    )


@QUICK
@given(NODES, GPUS, st.integers(1, 32), st.integers(1, 32), STRATEGIES, st.sampled_from(sorted(ENGINES)))
@example(128, 8, 1, 1, "zero3", "slurm")
@example(128, 8, 2, 4, "hsdp", "k8s")
@example(1024, 1, 1, 1, "ddp", "sky")
@example(1024, 1, 1, 1, "ddp", "ray")
@example(1, 1, 1, 1, "zero2", "local")
@example(8, 8, 1, 2, "zero3", "slurm")  # The nodes of SmolLM3's mid-training.
@example(16, 8, 1, 8, "fsdp", "slurm")  # OlympicCoder's nodes.
def test_every_file_says_the_same_of_topology_and_batch(nodes, gpus, micro, accum, strategy, engine):
    assume(nodes * gpus <= MOST)
    assume(not (engine == "torchrun" and strategy in SHARED))  # refused by XP802
    text = written(nodes, gpus, micro, accum, strategy, engine)
    found = checked(text)
    alone = nodes * gpus == 1 and strategy in SHARED  # sharding needs more than one process
    if alone or (strategy == "hsdp" and (nodes == 1 or gpus == 1)):
        # hsdp needs several groups, and several ranks in a group. A group is a node, so one node is too few, and so is
        # one GPU per node.
        assert errors(found)
        assert all(one.startswith("XP40") for one in errors(found)), shown(found)
        return
    files = compiled(text)
    agree(files, nodes, gpus, micro, accum, strategy, engine)


def agree(files, nodes, gpus, micro, accum, strategy, engine, readers=None):
    """Several files of a bundle contain the number of nodes, the GPUs per node, or the batch. Check that all of them
    contain the given numbers.
    """
    world = nodes * gpus
    gbs = micro * accum * (readers or world)
    payload = json.loads(files["trainer_args.json"])
    run, arguments = payload["run"], payload["arguments"]
    assert (run["nodes"], run["processes_per_node"], run["world_size"]) == (nodes, gpus, world)
    assert (run["micro"], run["accumulation"], run["gbs"]) == (micro, accum, gbs)
    assert arguments["per_device_train_batch_size"] == micro
    assert arguments["gradient_accumulation_steps"] == accum

    accelerate = yaml.safe_load(files["accelerate.yaml"])
    assert (accelerate["num_machines"], accelerate["num_processes"]) == (nodes, world)
    assert accelerate["machine_rank"] == 0
    if strategy.startswith("zero"):
        deepspeed = json.loads(files["deepspeed.json"])
        assert deepspeed["train_batch_size"] == gbs
        assert deepspeed["train_micro_batch_size_per_gpu"] == micro
        assert deepspeed["gradient_accumulation_steps"] == accum
        launcher = accelerate["deepspeed_config"].get("deepspeed_multinode_launcher")
        assert launcher == "standard"
    else:
        assert "deepspeed.json" not in files

    script = files["launch.sh"].decode()
    output = re.search(r"^#   global batch   (\d+) = (\d+) \w+ x (\d+) accumulation x (\d+) ", script, re.M)
    assert output is not None
    assert [int(one) for one in output.groups()] == [gbs, micro, accum, readers or world]
    output = re.search(r"^#   processes      (\d+) = (\d+) nodes? x (\d+)$", script, re.M)
    assert output is not None
    assert [int(one) for one in output.groups()] == [world, nodes, gpus]
    assert ("NODE_RANK" in script) is (nodes > 1)
    if engine == "torchrun":
        assert f"--nproc_per_node {gpus}\n" in script
        assert (f'--nnodes {nodes} --node_rank "$NODE_RANK"' in script) is (nodes > 1)

    page = files["README.md"].decode()
    assert f"| {nodes} x ({gpus} x h100-80gb) = {world} process{'es' * (world > 1)} |" in page
    assert f"| {gbs} sequences = {micro} x {accum} accumulation x " in page
    of_engine(files, nodes, gpus, engine)


def of_engine(files, nodes, gpus, engine):
    """Check that an engine's files request exactly the nodes and GPUs on which launch.sh starts processes."""
    assert ("job.sbatch" in files) is (engine == "slurm")
    assert ("trainjob.yaml" in files) is ("jobset.yaml" in files) is (engine == "k8s")
    assert ("sky.yaml" in files) is (engine == "sky")
    if engine == "slurm":
        job = files["job.sbatch"].decode()
        options = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", job, re.M))
        assert options["nodes"] == str(nodes)
        assert options["gres"] == f"gpu:{gpus}"
        assert options["ntasks-per-node"] == "1"
        assert f"srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 " in job
    if engine == "k8s":
        trainer = yaml.safe_load(files["trainjob.yaml"])["spec"]["trainer"]
        assert (trainer["numNodes"], trainer["numProcPerNode"]) == (nodes, gpus)
        assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": gpus}
        (job,) = yaml.safe_load(files["jobset.yaml"])["spec"]["replicatedJobs"]
        inside = job["template"]["spec"]
        assert (job["replicas"], inside["parallelism"], inside["completions"]) == (1, nodes, nodes)
        assert inside["completionMode"] == "Indexed"
        (pod,) = inside["template"]["spec"]["containers"]
        assert pod["resources"]["limits"] == {"nvidia.com/gpu": gpus}
    if engine == "sky":
        task = yaml.safe_load(files["sky.yaml"])
        assert task["num_nodes"] == nodes
        assert task["resources"]["accelerators"] == f"H100:{gpus}"
    assert ("ray.json" in files) is ("ray_job.py" in files) is (engine == "ray")
    if engine == "ray":
        job = json.loads(files["ray.json"])
        assert (job["nodes"], job["gpus"]) == (nodes, gpus)


@QUICK
@given(st.integers(1, 64), st.sampled_from((2, 4, 8)), st.sampled_from((2, 4, 8)), st.integers(1, 8), st.integers(1, 8))
def test_ranks_that_share_a_sequence_are_one_reader(nodes, gpus, together, micro, accum):
    assume(nodes * gpus <= MOST and nodes * gpus % together == 0)
    readers = nodes * gpus // together
    text = written(
        nodes, gpus, micro, accum, f"fsdp(context_parallel={together})", "slurm", "model attn=sdpa", readers=readers
    )
    found = checked(text)
    if errors(found):  # Some values are refused by the rules of context parallelism, which other tests cover.
        assert "XP201" not in errors(found), shown(found)
        return
    agree(compiled(text), nodes, gpus, micro, accum, "fsdp", "slurm", readers)


@QUICK
@given(st.integers(1, 256), st.integers(1, 8), st.integers(1, 4096))
def test_the_plan_holds_at_every_scale(nodes, gpus, accum):
    """The plan chooses a micro-batch that divides the global batch. On twice as many nodes, with twice the global
    batch, a process never needs more memory.
    """
    world = nodes * gpus
    assume(world <= MOST)
    # recomputation is fixed: if the plan could leave it out, it might take a smaller micro-batch, which would be faster
    kept = "memory(checkpointing)"
    found = checked(
        spec(f"nodes {nodes}", kept, hardware=f"{gpus} x h100-80gb", strategy="zero3", batch=f"gbs={accum * world}")
    )
    assert found.spec is not None, shown(found)
    micro = found.spec.integer("batch.micro")
    assert micro * found.spec.integer("batch.accum") * world == accum * world
    batch = f"gbs={2 * accum * world}"
    wider = checked(spec(f"nodes {2 * nodes}", kept, hardware=f"{gpus} x h100-80gb", strategy="zero3", batch=batch))
    if 2 * nodes <= MOST:
        assert wider.spec is not None
        assert wider.spec.integer("batch.micro") >= micro


def test_more_nodes_or_processes_than_the_language_has_are_refused():
    assert errors(checked(spec("nodes 1025", batch="micro=1 accum=1"))) == ["XP107"]
    assert only(checked(spec(hardware="1025 x h100-80gb", batch="micro=1 accum=1")), "XP107").help


def test_a_sweep_over_nodes_keeps_the_arithmetic_in_every_member():
    counts = (1, 2, 4, 8, 16, 32, 64, 128)
    text = spec(f"sweep {{\n  nodes = [{', '.join(map(str, counts))}]\n}}", batch="gbs=4096 micro=4")
    files = compiled(text)
    for nodes in counts:
        start = f"members/nodes={nodes}/"
        own = {name.removeprefix(start): data for name, data in files.items() if name.startswith(start)}
        agree(own, nodes, 8, 4, 4096 // (4 * 8 * nodes), "zero2", "local")
