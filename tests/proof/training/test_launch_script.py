"""launch.sh is started from various working folders. It finds its bundle, or reports in one sentence what is wrong."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from emitted import FILES, compiled, cpu, put
from interpreters import OTHERS

from xpc.compiler.stacks import DEFAULT


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Compile a bundle into a folder whose name has characters that are special in a shell."""
    folder = str(tmp_path_factory.mktemp("launch") / "-a b\n$(c)'\"")
    return compiled(cpu("one").text, put(folder, FILES), os.path.join(folder, "x y.bundle\n"))


def dry(words: list[str], cwd: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run launch.sh with `--dry-run` and an interpreter that prints its arguments in brackets; return what it
    prints.
    """
    environment: Mapping[str, str] = {**os.environ, **variables}
    return subprocess.run([*words, "--dry-run"], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def runs(printed: str, bundle: str) -> bool:
    """Whether bash, when it reads the printed command, finds the paths of the bundle's files in it."""
    script = f"set -- {printed}\nprintf '%s\\0' \"$@\""
    words = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split("\0")
    started = f"{bundle}/trainer/launcher.py"
    return words[1:3] == [started, "accelerate.commands.launch"] and words[-2] == f"{bundle}/trainer/main.py"


def test_a_start_by_its_path_from_elsewhere_finds_the_bundle(bundle: str, tmp_path: Path) -> None:
    done = dry([os.path.join(bundle, "launch.sh")], str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert runs(done.stdout, bundle)


def test_arguments_are_quoted_as_bash_does(bundle: str) -> None:
    assert runs(dry(["bash", "launch.sh"], bundle).stdout, bundle)
    # two traps for `cd`: a folder name that begins with a dash, and CDPATH, which makes `cd` print
    above = os.path.dirname(bundle)
    relative = os.path.join(os.path.basename(above), os.path.basename(bundle), "launch.sh")
    assert runs(dry(["bash", "--", relative], os.path.dirname(above), CDPATH="/tmp:.").stdout, bundle)


def test_a_start_through_a_link_or_the_path_finds_the_bundle(bundle: str, tmp_path: Path) -> None:
    links = os.path.join(tmp_path, "bin")
    os.mkdir(links)
    os.symlink(os.path.join(bundle, "launch.sh"), os.path.join(links, "start-run"))
    assert runs(dry([os.path.join(links, "start-run")], "/").stdout, bundle)
    assert runs(dry(["bash", "-c", 'start-run "$@"', "-"], "/", PATH=f"{links}:{os.environ['PATH']}").stdout, bundle)


@pytest.mark.skipif(shutil.which("dash") is None, reason="no other shell is installed")
def test_other_shell_is_refused(bundle: str) -> None:
    done = dry(["dash", "launch.sh"], bundle)
    assert done.returncode == 2
    assert done.stderr == "launch.sh: this is a script for bash: bash launch.sh\n"


def test_an_interpreter_that_is_none_is_named(bundle: str) -> None:
    done = subprocess.run([os.path.join(bundle, "launch.sh")], env={**os.environ, "PYTHON": "/no/python"},
                          capture_output=True, text=True, check=False)  # fmt: skip
    reported = "launch.sh: no program /no/python; set PYTHON to the interpreter of the run\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", reported)


def emitted(folder: str, name: str, *more: str, target: str, on: str = "2 x cpu") -> str:
    text = cpu(name, *more, on=on, target=target).text
    return compiled(text, put(os.path.join(folder, name), FILES), os.path.join(folder, f"{name}.bundle"))


def port(output: str) -> int:
    return int(output.split("--main_process_port ")[1].split()[0])


def test_the_older_stack_gets_a_free_port_of_its_own(tmp_path: Path) -> None:
    """accelerate 1.4 always uses port 29500, so a second run on the machine could not start. Therefore launch.sh
    chooses a free port.
    """
    script = os.path.join(emitted(str(tmp_path), "old", target=OTHERS[0]), "launch.sh")
    ports = {port(dry([script], "/").stdout) for _ in range(6)}
    assert len(ports) > 1
    assert all(10000 <= one < 30000 for one in ports)
    assert port(dry([script], "/", MASTER_PORT="23456").stdout) == 23456
    with open(script, encoding="utf-8") as handle:
        function = handle.read().split("\nfree_port() {")[1].split("\n}\n")[0]

    def first(seed: int) -> int:
        text = f"free_port() {{{function}\n}}\nRANDOM={seed}\nfree_port"
        return int(subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True).stdout)

    def seeded() -> tuple[int, socket.socket]:
        for seed in range(1, 50):
            try:
                return seed, socket.create_server(("", first(seed)))
            except OSError:
                continue
        raise AssertionError("no port of this machine is free")

    seed, taken = seeded()
    with taken:
        assert first(seed) != taken.getsockname()[1]


NODES = {"NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def test_nodes_meet_by_their_number_or_as_torch_numbers_them(tmp_path: Path) -> None:
    def launch_output(name: str, *more: str, **variables: str) -> str:
        bundle = emitted(str(tmp_path), name, "nodes 2", *more, target=DEFAULT, on="cpu")
        done = dry([os.path.join(bundle, "launch.sh")], "/", **NODES, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    static = launch_output("static", XPC_NODE_WAIT="17")
    assert "--machine_rank 0 --main_process_ip 10.0.0.1 --rdzv_conf timeout=17 " in static
    torchrun = launch_output("torchrun", "launch local(launcher=torchrun)")
    assert "--nnodes 2 --node_rank 0 --master_addr 10.0.0.1 --master_port 29500 --rdzv_conf timeout=300 " in torchrun
    c10d = launch_output("c10d", "launch local(launcher=torchrun, rendezvous=c10d)")
    assert "--rdzv_backend c10d --rdzv_endpoint 10.0.0.1:29500 " in c10d
    assert "--rdzv_conf is_host=true\\,join_timeout=300 " in c10d
    assert "--same_network" not in static + torchrun + c10d  # with c10d the endpoint stays empty (accelerate 1.15)
    bundle = os.path.join(tmp_path, "c10d.bundle")
    other = dry([os.path.join(bundle, "launch.sh")], "/", **{**NODES, "NODE_RANK": "1"}).stdout
    assert "is_host=false" in other
    wrong = dry([os.path.join(bundle, "launch.sh")], "/", **NODES, XPC_NODE_WAIT="5m")
    assert (wrong.returncode, wrong.stderr) == (2, "launch.sh: XPC_NODE_WAIT must be a number, not 5m\n")
