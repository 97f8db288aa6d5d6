"""`--help` of a bundle's scripts lists their arguments, environment variables and exit statuses. It starts no run."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from case_support import on_cpu, spec
from cluster_support import GRPO, PROMPTS, k8s
from compile_support import compiled, put
from test_engines import LAUNCH

from xpc.compiler.language.launch_settings import ENGINES

TWO = "gbs=128 micro=8"
SPECS = {
    **{engine: spec(LAUNCH[engine]) for engine in ENGINES},
    "two-nodes": spec("nodes 2", batch=TWO),
    "cpu": on_cpu("eval(tasks=[gsm8k])"),
    "server": spec("nodes 2", GRPO.format(vllm="vllm(mode=server)"), k8s(), train=PROMPTS, batch=TWO),
    "environment": spec('launch local(env=["A=1"])'),
    "torchrun": spec("nodes 2", "launch local(launcher=torchrun)", strategy="ddp", batch=TWO),
    "old": spec("target trl-0.18", strategy="zero3"),
}
READ = re.compile(r"\$\{([A-Z][A-Z_]+):[-?]")
"""Matches a reference to an environment variable in a script."""
NOT_SAID = {"BASH_VERSION", "HOME", "XDG_CACHE_HOME", "PYTORCH_CUDA_ALLOC_CONF", "OMP_NUM_THREADS"}
"""Variables that `--help` need not list: those of the shell and the system, an older name of a listed variable, and a
variable that is checked only on GPUs.
"""


def helped(script: Path, *words: str) -> str:
    """Run `SCRIPT --help` with a PYTHON that does not exist, and return the output. Check that no file is written."""
    before = sorted(os.listdir(script.parent))
    done = subprocess.run(
        ["bash", str(script), *words], cwd=script.parent, env={"PATH": os.environ["PATH"], "PYTHON": "/no/python"},
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert sorted(os.listdir(script.parent)) == before
    return done.stdout


def written(tmp_path: Path, text: str) -> dict[str, Path]:
    """Write the scripts of a spec's bundle to disk; returns their paths by name."""
    files = {name: data.decode() for name, data in compiled(text).items() if name.endswith(".sh")}
    put(tmp_path, files)
    return {name: tmp_path / name for name in files}


@pytest.mark.parametrize("name", SPECS)
def test_help_says_what_a_script_takes_and_reads(tmp_path: Path, name: str) -> None:
    scripts = written(tmp_path, SPECS[name])
    scripts.pop("environment.sh", None)
    assert "launch.sh" in scripts
    for file, path in scripts.items():
        source, output = path.read_text(), helped(path, "--help")
        assert output == helped(path, "-h")
        taken = set(re.findall(r"^  (--[a-z-]+)(?: \| -h)?\)", source, re.M))
        assert {"--help", "--dry-run"} <= taken
        assert set(re.findall(r"^  \./\S+ (--[a-z-]+)", output, re.M)) == taken, file
        read = set(READ.findall(source)) - NOT_SAID
        assert {"PYTHON", "XPC_STAGED"} <= read <= set(re.findall(r"^  ([A-Z][A-Z_]+) ", output, re.M)), file
        for status in ("0", "1", "2") if file == "evaluate.sh" else ("0", "75", "1", "2", "76", "128"):
            assert re.search(rf"\b{status}\b", output.partition("Exit status:")[2]), (file, status)
        assert "#" not in output
        assert max(map(len, source.splitlines())) <= 120 or file == "environment.sh"


def test_what_is_said_is_what_the_run_reads(tmp_path: Path) -> None:
    """`--help` lists the variables for several nodes only if the run has several nodes, and the variables for a vLLM
    server only if the run uses a vLLM server.
    """
    one = helped(written(tmp_path / "1", spec())["launch.sh"], "--help")
    assert "MASTER_PORT          a free port of node 0 (found if unset)" in one
    assert "XPC_RETRIES          how often a run that has lost a process is restarted (3)" in one
    assert not re.search("NODE_RANK|MASTER_ADDR|XPC_NODE_WAIT|XPC_VLLM_HOST|OMP_NUM_THREADS", one)
    two = helped(written(tmp_path / "2", SPECS["two-nodes"])["launch.sh"], "--help")
    assert "NODE_RANK            the number of this node, 0 to 1" in two
    assert "XPC_VLLM_HOST" in helped(written(tmp_path / "3", SPECS["server"])["launch.sh"], "--help")


def test_help_of_a_sweep_and_its_members_lists_arguments_and_statuses(tmp_path: Path) -> None:
    files = compiled(spec("sweep seed=[1, 2]"))
    put(tmp_path, {name: data for name, data in files.items() if name.endswith((".sh", "members.txt"))})
    for member in (tmp_path / "members").iterdir():
        (member / "launch.sh").chmod(0o755)
    output = helped(tmp_path / "launch.sh", "--help")
    assert output == helped(tmp_path / "launch.sh", "-h")
    assert "2 members" in output
    assert set(re.findall(r"^  \./launch.sh (\S+)", output, re.M)) == {"MEMBER", "--all", "--list", "--help"}
    assert all(re.search(rf"\b{one}\b", output.partition("Exit status:")[2]) for one in ("0", "1", "2", "75"))
    assert "PYTHON" in helped(tmp_path / "launch.sh", "0", "--help")
