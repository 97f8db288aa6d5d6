"""`env`, `setup` and containers of `launch`: launch.sh, a pod's command and a Slurm job apply these settings when they
run.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from case_support import on_cpu, spec
from cluster_support import IMAGE, K8S, job, k8s, read, slurm, trainjob
from compile_support import compiled, put

from xpc.compiler.rules.strategy.launch_environment import variable

SETUP = 'echo "setup reads $MARK" >&2\nfalse\nexport PYTHON=/elsewhere/python\n'
ENVIRONMENT = on_cpu('launch local(env=["MARK=a b $(id) \'quoted\'", "NCCL_DEBUG=INFO"], setup=file("env.sh"))')


def written(folder: Path, text: str, **more: str) -> Path:
    """Write the bundle of a spec to disk."""
    out = folder / "b.bundle"
    put(out, compiled(text, put(folder, more)))
    return out


def launched(bundle: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inside = {**os.environ, **environment}
    return subprocess.run(
        ["bash", str(bundle / words[0]), *words[1:]], env=inside, capture_output=True, text=True, cwd=bundle.parent,
        check=False,
    )  # fmt: skip


def test_variables_and_setup_come_before_anything_else(tmp_path: Path) -> None:
    bundle = written(tmp_path, ENVIRONMENT, **{"env.sh": SETUP})
    done = launched(bundle, "launch.sh", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stderr == "setup reads a b $(id) 'quoted'\n"
    assert done.stdout.startswith("/elsewhere/python ")


SHOWN = '#!/bin/sh\necho "${PYTORCH_ALLOC_CONF-unset} ${PYTORCH_CUDA_ALLOC_CONF-unset}"\n'
"""A script that replaces Python and prints the variables of torch's allocator."""


@pytest.mark.parametrize(("text", "given", "reported"), [
    (spec(), {}, "expandable_segments:True unset"),
    (spec(), {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}, "max_split_size_mb:64 unset"),
    (spec(), {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, "unset max_split_size_mb:64"),
    (on_cpu(""), {}, "unset unset"),
])  # fmt: skip
def test_memory_segments_expand_on_gpus_unless_the_allocator_is_configured(
    tmp_path: Path, text: str, given: dict[str, str], reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    bundle = written(tmp_path, text)
    python = tmp_path / "python"
    python.write_text(SHOWN)
    python.chmod(0o755)
    done = launched(bundle, "launch.sh", PYTHON=str(python), **given)
    assert reported in done.stdout.splitlines(), (done.stdout, done.stderr)


def test_another_setup_than_the_compiled_one_is_not_read(tmp_path: Path) -> None:
    bundle = written(tmp_path, ENVIRONMENT, **{"env.sh": SETUP})
    (own,) = (bundle / "files").iterdir()
    own.write_text("touch pwned\n")
    done = launched(bundle, "launch.sh", "--dry-run")
    assert done.returncode == 1
    assert "was changed since the spec was compiled" in done.stderr
    assert not (tmp_path / "pwned").exists()


def test_setup_is_shown_to_the_reviewer(tmp_path: Path) -> None:
    readme = (written(tmp_path, ENVIRONMENT, **{"env.sh": SETUP}) / "README.md").read_text()
    assert "- files/env-" in readme.partition("## How to start it")[0]


def test_pods_are_placed() -> None:
    one = K8S["placed"]
    pod = job(one)["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "a100"}
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]
    requested = pod["containers"][0]["resources"]
    assert requested["requests"] == {"nvidia.com/gpu": 8, "cpu": 96, "memory": "800Gi"}
    assert requested["limits"] == {"nvidia.com/gpu": 8, "memory": "800Gi"}
    assert read(one, "jobset.yaml")["spec"]["failurePolicy"]["maxRestarts"] == 0
    patch = trainjob(one)["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"][0]
    same = patch["template"]["spec"]["template"]["spec"]
    assert {name: same[name] for name in ("nodeSelector", "tolerations", "imagePullSecrets")} == {
        name: pod[name] for name in ("nodeSelector", "tolerations", "imagePullSecrets")
    }
    assert "nodeSelector" not in job(spec(k8s()))["template"]["spec"]


SCONTROL = """\
#!/bin/bash
if [ "$2" = hostnames ]; then echo localhost; else printf '   Requeue=0\\n   Command=%s\\n' "$JOB"; fi
"""
SRUN = """\
#!/bin/bash
printf '%s\\n' "$@" >srun-words
"""
JOB_OF_SLURM = {
    "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "localhost", "SLURM_NODEID": "0",
}  # fmt: skip


def submitted(bundle: Path) -> subprocess.CompletedProcess[str]:
    """Run job.sbatch as Slurm would on the first node. The command srun is replaced by a script that only records its
    arguments.
    """
    tools = bundle.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    return launched(bundle, "job.sbatch", PATH=path, JOB=str(bundle / "job.sbatch"), **JOB_OF_SLURM)


@pytest.mark.parametrize(("settings", "words"), [
    ((f'image="{IMAGE}"', "container=pyxis"), ["--container-image=ghcr.io#me/train:1"]),
    (('image="/shared/a b.sqsh"', "container=pyxis"), ["--container-image=/shared/a b.sqsh"]),
    ((f'image="{IMAGE}"', "container=apptainer"), ["apptainer", "exec", "--nv", f"docker://{IMAGE}"]),
    (('image="/shared/a.sif"', "container=apptainer", 'mounts=["/d:/d:ro"]'), ["/d:/d:ro", "/shared/a.sif"]),
])  # fmt: skip
def test_the_task_of_a_node_runs_in_the_container(tmp_path: Path, settings: tuple[str, ...], words: list[str]) -> None:
    bundle = written(tmp_path, spec(slurm(*settings)))
    done = submitted(bundle)
    assert done.returncode == 0, done.stderr
    reported = (tmp_path / "srun-words").read_text().splitlines()
    assert [one for one in reported if one in words] == words
    assert reported[-3:] == ["bash", str(bundle / "job.sbatch"), "node"]
    mounted = " ".join(one for one in reported if f"{bundle}:{bundle}" in one or f"{tmp_path}:{tmp_path}" in one)
    assert f"{bundle}:{bundle}" in mounted
    assert f"{tmp_path}:{tmp_path}" in mounted


def test_a_run_that_changed_while_the_job_waited_is_refused(tmp_path: Path) -> None:
    bundle = written(tmp_path, spec(slurm()))
    (bundle / "README.md").write_text("notes of my own\n")
    assert submitted(bundle).returncode == 0
    os.remove(tmp_path / "srun-words")
    arguments = bundle / "trainer_args.json"
    arguments.write_text(arguments.read_text().replace("0.00002", "0.00003").replace("2e-05", "3e-05"))
    done = submitted(bundle)
    assert done.returncode == 1
    assert "trainer_args.json: FAILED" in done.stderr
    assert "files in" in done.stderr
    (tmp_path / "new").mkdir()
    anew = written(tmp_path / "new", spec(slurm()).replace("for 3 epochs", "for 2 epochs"))
    # The bundle is compiled again after the submission, but the submitted job still has the old job.sbatch.
    for name in ("trainer_args.json", "run.sha256"):
        (bundle / name).write_bytes((anew / name).read_bytes())
    done = submitted(bundle)
    assert done.returncode == 1
    assert "is not the one that was submitted: submit it again" in done.stderr
    assert not (tmp_path / "srun-words").exists()


def test_a_staged_folder_is_the_one_variable_of_the_launch_that_a_spec_may_state() -> None:
    assert variable("XPC_STAGED=/shared/staged") == ""
    assert variable("XPC_RETRIES=3") == "set by the launch itself"


ZERO2 = on_cpu("")


def locked(folder: Path, minutes: int) -> Path:
    """Make the lock file that torch makes in folder/cache while it compiles. The file is `minutes` old."""
    lock = folder / "cache" / "torch_extensions" / "py312_cpu" / "cpu_adam" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (time.time() - 60 * minutes - 30,) * 2)
    return lock


@pytest.mark.parametrize(("text", "minutes", "held", "named"), [
    (ZERO2, 7, False, True),
    (ZERO2, 7, True, False),  # a process compiles
    (ZERO2, 0, False, False),  # another machine may have begun to compile
    (on_cpu("", strategy="ddp"), 7, False, False),  # a run without DeepSpeed compiles nothing
])  # fmt: skip
def test_the_lock_of_a_killed_compilation_is_named(
    tmp_path: Path, text: str, minutes: int, held: bool, named: bool
) -> None:
    bundle, lock = written(tmp_path, text), locked(tmp_path, minutes)
    given = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TORCH_EXTENSIONS_DIR": "", "PYTHON": "true"}
    with lock.open() if held else nullcontext():
        done = launched(bundle, "launch.sh", **given)
    assert done.returncode == 0, done.stderr
    message = f"launch.sh: {lock} is 7 minutes old, and no process here compiles: "
    assert (message in done.stderr) is named, done.stderr
    assert (str(lock) in done.stderr) is named
