"""`launch slurm`: the `#SBATCH` header of job.sbatch follows the spec, and the rest is valid shell code."""

from __future__ import annotations

import pytest
from case_support import spec
from cluster_support import PROMPTS, slurm
from compile_support import checked, codes, compiled, shown, xpc
from hypothesis import given
from hypothesis import strategies as st

from xpc.compiler.engines.slurm.job import lead, limit, script

GRPO = "method grpo(generations=8, rewards=[accuracy], vllm(mode=server, port=8001))"
VARIANTS = {
    "one-node": spec(slurm()),
    "everything": spec(slurm('partition="a100,h100"', "account=lab", "time=36h", "exclusive", "requeue"), "nodes 2",
                       batch="gbs=128 micro=4"),
    "never-again": spec(slurm("requeue=false")),
    "pyxis": spec(slurm('image="nvcr.io/nvidia/pytorch:25.01-py3"', "container=pyxis", 'mounts=["/data:/data:ro"]',
                        "qos=high", 'constraint="a100&ib"', "cpus=96", "host_memory=800",
                        'extra_args=["--exclude=node13", "--mail-type=END"]', 'env=["NCCL_DEBUG=INFO"]')),
    "apptainer": spec(slurm('image="/shared/a.sif"', "container=apptainer"), "nodes 2", batch="gbs=128 micro=4"),
    "cpu": spec(slurm(), "nodes 2", hardware="4 x cpu", precision="fp32"),
    "torchrun": spec(slurm("launcher=torchrun"), "nodes 3", batch="gbs=384 micro=4"),
    "server": spec(GRPO, slurm(), "nodes 2", train=PROMPTS, batch="gbs=128 micro=4"),
    "server-one-node": spec(GRPO, slurm(), train=PROMPTS),
    "server-0.18": spec(GRPO, slurm(), "target trl-0.18", train=PROMPTS),
}  # fmt: skip


def job(text: str, name: str = "t.xp") -> str:
    return compiled(text, name=name)["job.sbatch"].decode()


def header(text: str) -> dict[str, str]:
    """Map the names of the options in `#SBATCH` lines to their values. The value of an option without a value is ""."""
    lines = [line.removeprefix("#SBATCH --") for line in job(text).splitlines() if line.startswith("#SBATCH")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def body(text: str) -> str:
    """The shell code of a script without comments and `#SBATCH` lines."""
    return "\n".join(line for line in job(text).splitlines() if not line.startswith("#"))


def test_a_header_says_what_the_spec_says():
    found = header(VARIANTS["everything"])
    assert found == {
        "job-name": "t", "nodes": "2", "ntasks-per-node": "1", "gres": "gpu:8", "exclusive": "", "mem": "0",
        "partition": "a100,h100", "account": "lab", "time": "1-12:00:00", "signal": "B:USR1@300", "requeue": "",
        "open-mode": "append", "output": "%x-%j.log", "error": "%x-%j.log",
    }  # fmt: skip


def test_further_options_stand_in_the_header():
    found = header(VARIANTS["pyxis"])
    wanted = {
        "qos": "high", "constraint": "a100&ib", "cpus-per-task": "96", "mem": "800G", "exclude": "node13",
        "mail-type": "END",
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted


def test_what_is_not_written_is_left_to_the_cluster():
    found = header(VARIANTS["one-node"])
    assert not {"partition", "account", "time", "signal", "exclusive", "mem", "no-requeue"} & set(found)
    assert (found["nodes"], found["gres"], found["cpus-per-task"]) == ("1", "gpu:8", "64")
    assert "requeue" in found


def test_a_cpu_job_asks_for_cores_and_no_gpu():
    found = header(VARIANTS["cpu"])
    assert (found["nodes"], found["cpus-per-task"]) == ("2", "4")
    assert "gres" not in found


@pytest.mark.parametrize(
    "text",
    [VARIANTS["never-again"], spec(slurm(), save='save "out/run" every=never'),
     spec(slurm(), save='save "out/run" resume=never')],
    ids=["asked", "no-checkpoints", "no-resume"],
)  # fmt: skip
def test_what_cannot_go_on_is_not_queued_again(text):
    assert "no-requeue" in header(text)
    assert "submit it again" in job(text)


def test_the_options_come_before_any_command():
    lines = job(VARIANTS["everything"]).splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert all(line.startswith("#") for line in lines[:last])


def test_a_node_tells_its_own_rank():
    text = body(VARIANTS["everything"])
    assert text.count("SLURM_NODEID") == 1
    assert text.index('"${1:-}" = node') < text.index("NODE_RANK=$SLURM_NODEID") < text.index("scontrol show job")
    assert "SLURM_PROCID" not in text


def test_one_node_more_runs_the_server():
    found, text = header(VARIANTS["server"]), job(VARIANTS["server"])
    assert found["nodes"] == "3"
    assert "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --relative=0" in text
    assert "srun --nodes=1 --ntasks=1 --relative=2" in text
    assert "--tensor-parallel 1 --data-parallel 8" in text
    assert 'XPC_VLLM_HOST=$(address "${hosts[2]}")' in text


def test_a_server_of_a_model_that_one_gpu_cannot_hold_spreads_it():
    text = spec(
        GRPO,
        slurm(),
        train="qwen2.5-72b on deepmath-103k for 100 steps",
        strategy="zero3(offload=optimizer)",
        batch="gbs=128",
    )
    found = checked(text)
    if found.spec is None:
        pytest.fail(shown(found))
    assert "--tensor-parallel 4 --data-parallel 2" in job(text)


def test_no_text_of_the_spec_stands_in_the_script():
    planted = "planted$(id)"
    text = spec(
        slurm("partition=main"), f'track wandb(name="{planted}", project="{planted}")', save=f'save "{planted}"'
    )
    assert planted not in job(text)
    assert "#SBATCH --job-name=a-b--id\n" in job(text, "a b$(id).xp")


def test_an_array_finds_its_members():
    found = checked(spec(slurm()))
    assert found.spec is not None
    text = script(found.spec, "sweep", "0" * 64, members=1000)
    assert "#SBATCH --array=0-999\n" in text
    assert "#SBATCH --output=%x-%A_%a.log\n" in text
    assert "here=$here/members/${members[SLURM_ARRAY_TASK_ID]}" in text


@given(st.integers(60, 366 * 86400))
def test_limit_is_never_shorter_than_requested(seconds):
    days, _, rest = limit(seconds).partition("-")
    hours, minutes, zero = map(int, rest.split(":"))
    requested = int(days) * 86400 + hours * 3600 + minutes * 60
    assert zero == 0
    assert seconds <= requested < seconds + 60


@pytest.mark.parametrize(("seconds", "before"), [(60, 60), (90, 60), (600, 300), (86400, 300), (10**9, 300)])
def test_the_signal_leaves_time_to_train_and_to_save(seconds, before):
    found = checked(spec(slurm()))
    assert found.spec is not None
    assert lead(found.spec, seconds) == before


def test_larger_model_gets_its_signal_earlier():
    seventy = spec(
        slurm("time=2d"),
        train="qwen2.5-72b on infinity-instruct for 3 epochs",
        strategy="zero3(offload=optimizer)",
        batch="gbs=8",
    )
    assert int(header(seventy)["signal"].rpartition("@")[2]) > 1800


def test_compile_names_the_command(tmp_path):
    (tmp_path / "run.xp").write_text(VARIANTS["one-node"])
    done = xpc("compile", "run.xp", cwd=str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert done.stdout.decode().endswith("launch it with\n  sbatch ./run.bundle/job.sbatch\n")
    assert "sbatch job.sbatch" in (tmp_path / "run.bundle" / "README.md").read_text()


def test_other_launchers_have_no_job():
    assert "job.sbatch" not in compiled(spec())
    assert codes(checked(spec("launch local(partition=main)")), "error") == ["XP890"]
