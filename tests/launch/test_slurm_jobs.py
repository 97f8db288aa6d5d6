"""job.sbatch in a real Slurm cluster of two nodes. launch.sh is replaced by a short script that trains nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from emitted import FILES, compiled, cpu, one, put
from jobs import SERVER, log, node_lines, spec, stand_in, until
from ports import free_port
from slurm import Cluster

pytestmark = pytest.mark.slow


GRPO = 'method grpo(generations=8, rewards="rewards.py:short", vllm(mode=server))'
PROMPTS = "qwen2.5-3b on deepmath-103k for 100 steps"
ACCEPTED = {
    "options": one("z", 'launch slurm(partition=gpu, cpus=16, host_memory=1, '
                   'extra_args=["--nice=5", "--mail-type=NONE"], env=["NCCL_DEBUG=INFO"])'),
    "one-node": one("a", "launch slurm(partition=gpu)"),
    "everything": one("b", "nodes 2", "launch slurm(partition=gpu, account=lab, time=36h, exclusive, requeue)",
                      batch="gbs=128 micro=2"),
    "sixteen-nodes": one("c", "nodes 16", "launch slurm(partition=gpu, requeue=false, time=7d)",
                         batch="gbs=512 micro=4"),
    "torchrun": one("d", "launch slurm(partition=gpu, launcher=torchrun)"),
    "server": one("e", "nodes 2", GRPO, "launch slurm(partition=gpu, exclusive)", train=PROMPTS),
    "cpu": cpu("f", "nodes 2", 'launch slurm(partition="main,urgent", time=30m)'),
}  # fmt: skip


def accepts(cluster: Cluster, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    bundle = compiled(text, put(str(folder), FILES), str(folder / "b.bundle"))
    return cluster.run("sbatch", "--test-only", os.path.join(bundle, "job.sbatch"))


@pytest.mark.parametrize("name", ACCEPTED)
def test_slurm_accepts_the_script(cluster: Cluster, tmp_path: Path, name: str) -> None:
    done = accepts(cluster, tmp_path, ACCEPTED[name].text)
    assert done.returncode == 0, done.stderr
    assert "to start at" in done.stderr


@pytest.mark.parametrize("setting", ["partition=elsewhere", "partition=gpu, time=8d"])
def test_slurm_looks_at_the_script(cluster: Cluster, tmp_path: Path, setting: str) -> None:
    """`sbatch --test-only` refuses a job if the cluster has no partition with the name that the spec states, or if the
    time in the spec is longer than the partition allows.
    """
    assert accepts(cluster, tmp_path, one("a", f"launch slurm({setting})").text).returncode != 0


def held(cluster: Cluster, folder: Path, *lines: str) -> dict[str, str]:
    """Add `#SBATCH` lines to a compiled job, and submit it with --hold, so that it does not run. Return the fields that
    Slurm shows of the job.
    """
    script = Path(stand_in(str(folder), spec(), "0"))
    added = "".join(f"#SBATCH {one}\n" for one in lines)
    script.write_text(script.read_text().replace("#SBATCH --open-mode", f"{added}#SBATCH --open-mode"))
    number = cluster.submit("--hold", str(script), cwd=str(folder))
    job = cluster.job(number)
    cluster.run("scancel", number)
    cluster.wait(number)
    return job


def test_the_last_of_two_options_wins(cluster: Cluster, tmp_path: Path) -> None:
    """If job.sbatch has an `#SBATCH` option twice, Slurm uses the last occurrence, without a message. So a user's
    `--nodes` could change the compiled number of nodes, and xpc refuses it (XP920).
    """
    assert held(cluster, tmp_path, "--nice=5")["NumNodes"].split("-")[0] == "2"
    assert held(cluster, tmp_path / "more", "--nodes=3")["NumNodes"].split("-")[0] == "3"


def test_exclusive_node_is_allocated_for_a_few_cores(cluster: Cluster, tmp_path: Path) -> None:
    """With --exclusive, Slurm allocates all 4 cores of the node to the job, but a task with --cpus-per-task=2 still
    gets only 2 of them (XP922).
    """
    (tmp_path / "part").write_text("#!/bin/sh\nsleep 60\n")
    number = cluster.submit("--exclusive", "--cpus-per-task=2", str(tmp_path / "part"), cwd=str(tmp_path))
    until(lambda: cluster.job(number)["JobState"] == "RUNNING", "it runs")
    job = cluster.job(number)
    cluster.run("scancel", number)
    cluster.wait(number)
    assert (job["NumCPUs"], job["CPUs/Task"]) == ("4", "2")


def test_without_pyxis_srun_knows_no_container(cluster: Cluster) -> None:
    """srun has the container options only if the plugin pyxis is installed, which some clusters lack (XP921)."""
    done = cluster.run("srun", "--container-image=ubuntu", "true")
    assert done.returncode != 0
    assert "unrecognized option '--container-image=ubuntu'" in done.stderr


def running(folder: Path, start: int = 0) -> bool:
    """Whether launch.sh has been started more than `start` times on each of the two nodes."""
    return all(sum(line.startswith("rank") for line in node_lines(str(folder), rank)) > start for rank in (0, 1))


def test_each_node_gets_its_rank(cluster: Cluster, tmp_path: Path) -> None:
    # The bundle's path has a space, and the job is submitted from the folder that contains the bundle.
    script = stand_in(str(tmp_path), spec(), "0")
    number = cluster.submit(script, cwd=str(tmp_path))
    job = cluster.wait(number)
    assert (job["JobState"], job["ExitCode"], job["JobName"]) == ("COMPLETED", "0:0", "job"), log(str(tmp_path))
    port = 10000 + int(number) % 20000
    for rank in (0, 1):
        line = f"rank {rank} of 2 on node{rank + 1} at 127.0.0.1:{port} start 0"
        assert node_lines(str(tmp_path), rank) == [line, "bundle the job.bundle"]
    assert f"job {number}, restart 0, nodes node[1-2], rendezvous 127.0.0.1:{port}" in log(str(tmp_path))


APPTAINER = """\
#!/bin/bash
printf '%s\\n' "$*" >>mounted
until [ "$1" = /shared/a.sif ]; do shift; done
shift
exec "$@"
"""


def test_container_mounts_complete_paths(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """apptainer 1.4.5 refuses a relative path as a mount point. So the mounts in job.sbatch are absolute, even if a
    user submits job.sbatch by a relative path.
    """
    script = Path(stand_in(str(tmp_path), spec(more='launch slurm(image="/shared/a.sif", container=apptainer)'), "0"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "apptainer").write_text(APPTAINER)
    (tmp_path / "bin" / "apptainer").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{cluster.environment['PATH']}"
    monkeypatch.setattr(cluster, "environment", {**cluster.environment, "PATH": path})
    number = cluster.submit(f"../{tmp_path.name}/{script.parent.name}/{script.name}", cwd=str(tmp_path))
    job = cluster.wait(number)
    assert job["JobState"] == "COMPLETED", log(str(tmp_path))
    wanted = f"--bind {script.parent}:{script.parent} --bind {tmp_path}:{tmp_path} /shared/a.sif"
    assert [wanted in line for line in (tmp_path / "mounted").read_text().splitlines()] == [True, True]


def test_a_node_that_fails_ends_the_job(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.wait(cluster.submit(stand_in(str(tmp_path), spec(), "fail"), cwd=str(tmp_path)))
    assert (job["JobState"], job["ExitCode"], job["Restarts"]) == ("FAILED", "3:0", "0"), log(str(tmp_path))
    assert len([line for line in node_lines(str(tmp_path), 1) if line.startswith("rank")]) == 1, log(str(tmp_path))


def test_a_run_that_is_compiled_anew_while_the_job_waits_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    script = stand_in(str(tmp_path), spec(), "0")
    number = cluster.submit("--hold", script, cwd=str(tmp_path))
    shutil.rmtree(os.path.dirname(script))
    stand_in(str(tmp_path), spec(steps=31), "0")
    assert cluster.run("scontrol", "release", number).returncode == 0
    job = cluster.wait(number)
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "1:0"), log(str(tmp_path))
    assert "is not the one that was submitted: submit it again" in log(str(tmp_path))
    assert not node_lines(str(tmp_path), 0)


def test_stopped_job_is_queued_again(cluster: Cluster, tmp_path: Path) -> None:
    number = cluster.submit(stand_in(str(tmp_path), spec(), "wait", "0"), cwd=str(tmp_path))
    until(lambda: running(tmp_path), "both nodes run")
    # the same signal as from --signal=B:USR1@300
    assert cluster.run("scancel", "--signal=USR1", "--batch", number).returncode == 0
    job = cluster.wait(number)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), log(str(tmp_path))
    for rank in (0, 1):
        lines = node_lines(str(tmp_path), rank)
        starts = [line for line in lines if line.startswith("rank")]
        assert f"asked {rank}" in lines
        assert [line[-7:] for line in starts] == ["start 0", "start 1"]
        # the second start uses another port
        assert starts[0].split(":")[1].split()[0] != starts[1].split(":")[1].split()[0]
    assert "queued again" in log(str(tmp_path))
    assert "restart 1" in log(str(tmp_path))


def test_a_node_that_leaves_late_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    number = cluster.submit(stand_in(str(tmp_path), spec(), "late", "0"), cwd=str(tmp_path))
    until(lambda: running(tmp_path), "both nodes run")
    cluster.run("scancel", "--signal=USR1", "--batch", number)
    job = cluster.wait(number)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), log(str(tmp_path))
    assert "left 1" in node_lines(str(tmp_path), 1)


def test_without_requeue_it_ends_with_75(cluster: Cluster, tmp_path: Path) -> None:
    text = spec(more="launch slurm(requeue=false)")
    job = cluster.wait(cluster.submit(stand_in(str(tmp_path), text, "75"), cwd=str(tmp_path)))
    assert (job["JobState"], job["ExitCode"], job["Restarts"]) == ("FAILED", "75:0", "0"), log(str(tmp_path))
    assert "submit it again" in log(str(tmp_path))


@pytest.mark.parametrize("where", ["XPC_JOB_BUNDLE", "NODE_RANK"], ids=["shell", "launcher"])
def test_a_stop_is_one_where_another_node_had_not_begun(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """If a node has no signal handler yet, srun's SIGTERM kills the node's shell or its launch.sh. The exit status of
    this node is then the highest one of the job. The job nevertheless counts as stopped on request, not as failed.
    """
    slow = tmp_path / "slow"
    slow.write_text(
        f'if [ "${{SLURM_PROCID:-}}" = 1 ] && [ "${{{where}:-}}" ]; then while ((SECONDS < 60)); do :; done; fi\n'
    )
    monkeypatch.setitem(cluster.environment, "BASH_ENV", str(slow))
    text = spec(more="launch slurm(requeue=false)")
    job = cluster.wait(cluster.submit(stand_in(str(tmp_path), text, "75"), cwd=str(tmp_path)))
    assert (job["JobState"], job["ExitCode"], job["Restarts"]) == ("FAILED", "75:0", "0"), log(str(tmp_path))
    assert "submit it again" in log(str(tmp_path))
    assert not node_lines(str(tmp_path), 1)


def test_a_cancelled_job_stays_cancelled(cluster: Cluster, tmp_path: Path) -> None:
    number = cluster.submit(stand_in(str(tmp_path), spec(), "wait"), cwd=str(tmp_path))
    until(lambda: running(tmp_path), "both nodes run")
    cluster.run("scancel", number)
    job = cluster.wait(number)
    assert (job["JobState"], job["Restarts"]) == ("CANCELLED", "0"), log(str(tmp_path))
    until(lambda: "asked 0" in node_lines(str(tmp_path), 0), "the run hears of it")


def test_preempted_it_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    number = cluster.submit(stand_in(str(tmp_path), spec(), "wait", "0"), cwd=str(tmp_path))
    until(lambda: running(tmp_path), "both nodes run")
    other = cluster.run("srun", "--partition=urgent", "--nodes=4", "--exclusive", "true")
    assert other.returncode == 0, other.stderr
    job = cluster.wait(number)
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), log(str(tmp_path))
    assert "asked 0" in node_lines(str(tmp_path), 0)


def test_the_loss_of_the_first_node_queues_the_job_again(cluster: Cluster, tmp_path: Path) -> None:
    """The batch shell runs on the first node, and is lost with this node. So the job cannot requeue itself, and Slurm
    must do it. test_slurm_trains.py tests the loss of the second node.
    """
    number = cluster.submit(stand_in(str(tmp_path), spec(), "wait", "0"), cwd=str(tmp_path))
    until(lambda: running(tmp_path), "both nodes run")
    cluster.kill_node("node1")
    cluster.notice("node1")
    try:
        job = cluster.wait(number)
    finally:
        cluster.start_node("node1")
    assert (job["JobState"], job["Restarts"]) == ("COMPLETED", "1"), log(str(tmp_path))
    assert "node1" not in cluster.run("scontrol", "show", "hostnames", job["NodeList"]).stdout.split()


def test_a_member_of_a_sweep_is_queued_again_alone(cluster: Cluster, tmp_path: Path) -> None:
    """In Slurm, the last task of an array has the same job number as the array. Requeueing this task must not requeue
    the whole array.
    """
    text = spec(more="launch slurm\nsweep {\n  lr = [1e-3, 2e-3]\n}").replace("(lr=1e-3)", "")
    number = cluster.submit(stand_in(str(tmp_path), text, "wait", "0"), cwd=str(tmp_path))

    def begun() -> list[str]:
        return sorted(line for line in node_lines(str(tmp_path), 1) if line.startswith("bundle"))

    until(lambda: len(begun()) == 2, "both members run")
    assert begun() == ["bundle lr=0.001", "bundle lr=0.002"]
    last = cluster.job(f"{number}_1")
    assert last["JobId"] == number
    cluster.run("scancel", "--signal=USR1", "--batch", f"{number}_1")
    until(lambda: len(begun()) == 3, "the last member runs again")
    assert begun() == ["bundle lr=0.001", "bundle lr=0.002", "bundle lr=0.002"]
    until(lambda: cluster.job(f"{number}_1")["JobState"] == "COMPLETED", "it ends")
    assert cluster.job(f"{number}_1")["Restarts"] == "1"
    assert [cluster.job(f"{number}_0")[one] for one in ("JobState", "Restarts")] == ["RUNNING", "0"]
    cluster.run("scancel", number)
    cluster.wait(f"{number}_0")


def test_a_bundle_that_is_not_there_is_named(cluster: Cluster, tmp_path: Path) -> None:
    script = stand_in(str(tmp_path), spec(), "0")
    copy = tmp_path / "job.sbatch"
    copy.write_bytes(Path(script).read_bytes())
    job = cluster.wait(cluster.submit(str(copy), cwd=str(tmp_path)))
    assert job["ExitCode"] == "1:0"
    assert f"no bundle in {tmp_path}: submit the job.sbatch of a bundle by its path" in log(str(tmp_path))


def test_another_number_of_nodes_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    job = cluster.wait(cluster.submit("--nodes=1", stand_in(str(tmp_path), spec(), "0"), cwd=str(tmp_path)))
    assert job["ExitCode"] == "1:0"
    assert "this bundle is for 2 nodes, and Slurm gave 1: leave --nodes out" in log(str(tmp_path))


@pytest.fixture
def served(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a spec of grpo with a vLLM server. In the cluster, a small program replaces vLLM."""
    program = tmp_path / "vllm"
    program.write_text(SERVER.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setitem(cluster.environment, "XPC_VLLM", str(program))
    port = free_port()
    method = (
        f'method grpo(rewards="rewards.py:short", generations=2, max_completion=16, vllm(mode=server, port={port}))'
    )
    return spec(more=f"{method}\nlaunch slurm", data="prompts.jsonl")


def test_the_last_node_runs_the_server(cluster: Cluster, tmp_path: Path, served: str) -> None:
    number = cluster.submit(stand_in(str(tmp_path), served, "wait", "0"), cwd=str(tmp_path))
    until(lambda: running(tmp_path), "both nodes run")
    words = (tmp_path / "server").read_text().split("\n")
    assert words[:2] == ["serve", str(tmp_path / "tiny")]
    assert words[-3:] == ["node3", "1", ""]
    for rank in (0, 1):
        until(lambda rank=rank: len(node_lines(str(tmp_path), rank)) > 1, "a node says its second line")
        assert node_lines(str(tmp_path), rank)[0].startswith(f"rank {rank} of 2 on node{rank + 1} ")
        assert node_lines(str(tmp_path), rank)[1] == "server 127.0.0.1"
    cluster.run("scancel", "--signal=USR1", "--batch", number)
    job = cluster.wait(number)
    assert (job["JobState"], job["Restarts"], job["NumNodes"]) == ("COMPLETED", "1", "3"), log(str(tmp_path))
    # A server ends by itself only if the file `end` exists. The file does not exist, so in both starts the job has
    # stopped the server.
    assert not os.path.exists(tmp_path / "end")


def test_a_server_that_cannot_start_ends_the_job(cluster: Cluster, tmp_path: Path, served: str) -> None:
    (tmp_path / "end").touch()
    job = cluster.wait(cluster.submit(stand_in(str(tmp_path), served, "0"), cwd=str(tmp_path)))
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "1:0"), log(str(tmp_path))
    assert "no GPU here" in log(str(tmp_path))
    assert "the vLLM server on node3 ended; its message is above" in log(str(tmp_path))
    assert not node_lines(str(tmp_path), 0)


def test_a_server_that_never_answers_is_not_waited_for_in_vain(
    cluster: Cluster, tmp_path: Path, served: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cluster.environment, "XPC_SERVER_WAIT", "12")
    (tmp_path / "vllm").write_text("#!/bin/sh\nexec sleep 600\n")
    job = cluster.wait(cluster.submit(stand_in(str(tmp_path), served, "0"), cwd=str(tmp_path)))
    assert (job["JobState"], job["ExitCode"]) == ("FAILED", "1:0"), log(str(tmp_path))
    assert "the vLLM server on node3 did not answer within 12 seconds" in log(str(tmp_path))
    assert "waiting for the vLLM server on node3, 1" in log(str(tmp_path))


def test_a_server_that_ends_takes_the_training_with_it(cluster: Cluster, tmp_path: Path, served: str) -> None:
    number = cluster.submit(stand_in(str(tmp_path), served, "wait"), cwd=str(tmp_path))
    until(lambda: running(tmp_path), "both nodes run")
    (tmp_path / "end").touch()
    job = cluster.wait(number)
    assert (job["JobState"], job["ExitCode"], job["Restarts"]) == ("FAILED", "1:0", "0"), log(str(tmp_path))
    assert "the vLLM server on node3 ended before the training" in log(str(tmp_path))


def test_training_that_fails_ends_the_server(cluster: Cluster, tmp_path: Path, served: str) -> None:
    job = cluster.wait(cluster.submit(stand_in(str(tmp_path), served, "fail"), cwd=str(tmp_path)))
    assert (job["JobState"], job["ExitCode"], job["Restarts"]) == ("FAILED", "3:0", "0"), log(str(tmp_path))
