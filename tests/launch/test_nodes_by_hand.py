"""Training on several nodes without a scheduler: the tests run, on each node, exactly the command that `xpc compile`
prints for it.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess

import pytest
from compile_support import put, xpc
from forks import Forks
from jobs import steps_of
from patience import HUNG
from stacks import environment
from tiny_runs import spec

from xpc.compiler.engines.local import ADDRESS, PORT


def commands(text: str) -> list[str]:
    """The lines of a text that are commands to type on a node."""
    return re.findall(r"^ *(MASTER_ADDR=.*)$", text, re.M)


def printed(folder: object, nodes: int, *more: str) -> tuple[str, list[str]]:
    """Compile a run for `nodes` nodes. Return what `xpc compile` prints, and the commands for the nodes in the bundle's
    README.md.
    """
    lines = "\n".join(("train qwen2.5-0.5b-instruct on capybara for 3 steps", "hardware 2 x h100-80gb", *more))
    put(folder, {"two.xp": f"xpc 1\n{lines}\nnodes {nodes}\nbatch(gbs={4 * nodes}, micro=1)\n"})
    done = xpc("compile", "two.xp", "--force", cwd=str(folder))
    assert done.returncode == 0, done.stdout
    with open(os.path.join(str(folder), "two.bundle", "README.md"), encoding="utf-8") as handle:
        return done.stdout.decode(), commands(handle.read().partition("## How to start it")[2].partition("| | |")[0])


def test_each_node_has_its_command(tmp_path):
    text, readme = printed(tmp_path, 3)
    numbered = [f"MASTER_ADDR={ADDRESS} MASTER_PORT={PORT} NODE_RANK={rank}" for rank in range(3)]
    assert commands(text) == [f"{one} ./two.bundle/launch.sh" for one in numbered]
    assert readme == [f"{one} ./launch.sh" for one in numbered]
    assert "Use these values on all nodes" in text


def test_of_many_nodes_the_first_two_and_the_last_are_shown(tmp_path):
    text, readme = printed(tmp_path, 64)
    ranks = [re.findall(r"NODE_RANK=(\d+)", one)[0] for one in commands(text)]
    assert ranks == ["0", "1", "63"]
    assert len(readme) == 3


def test_one_node_and_a_scheduler_need_no_numbers(tmp_path):
    for nodes, more in ((1, ()), (2, ("launch slurm",))):
        text, readme = printed(tmp_path, nodes, *more)
        assert commands(text) == readme == [], (nodes, more)


def test_a_sweep_of_several_nodes_is_typed_on_each(tmp_path):
    put(
        tmp_path,
        {
            "s.xp": "xpc 1\ntrain qwen2.5-0.5b-instruct on capybara for 3 steps with 1 x h100-80gb nodes 2 gbs=4\n"
            "sweep { lr = [1e-5, 2e-5] }\n"
        },
    )
    done = xpc("compile", "s.xp", cwd=str(tmp_path))
    assert [one.partition("NODE_RANK=")[2] for one in commands(done.stdout.decode())] == [
        "0 ./s.bundle/launch.sh --all",
        "1 ./s.bundle/launch.sh --all",
    ], done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["", "launcher=torchrun", "launcher=torchrun, rendezvous=c10d"])
def test_the_printed_commands_train(warm: Forks, location: str, tmp_path, launcher: str) -> None:
    more = (f"launch local({launcher})",) if launcher else ()
    text = spec("nodes 2", *more, strategy="ddp", hardware="cpu", length="3 steps", save='save "out" every=never')
    put(location, {"hand.xp": text})
    out = str(tmp_path / "hand.bundle")
    done = xpc("compile", "hand.xp", "-o", out, cwd=location)
    assert done.returncode == 0, done.stdout
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    typed = [one.replace(ADDRESS, "127.0.0.1").replace(str(PORT), str(port)) for one in commands(done.stdout.decode())]
    assert len(typed) == 2
    environ = environment(PYTHON=warm.python, XPC_DATA_ROOT=location)
    nodes = [
        subprocess.Popen(
            ["bash", "-c", one], cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for one in typed
    ]
    ended = [(one.communicate(timeout=HUNG)[0], one.returncode) for one in nodes]
    assert [status for _, status in ended] == [0, 0], "\n\n".join(words for words, _ in ended)
    assert [one["step"] for one in steps_of(str(tmp_path))] == [1, 2, 3], shlex.join(typed)
