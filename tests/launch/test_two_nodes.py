"""Bundles for two nodes run on this machine in two network namespaces. Each namespace has its own host name and
address.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from emitted import compiled
from forks import Forks
from jobs import steps_of
from netns import ADDRESSES, Nodes, missing
from patience import HUNG
from stacks import environment, interpreter, launch
from tiny_runs import spec

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow
NOISE = ("[c10d] The hostname", "ProcessGroup.hpp", "Failed to load CPU gemm_4bit_forward")
"""Warnings of libraries that the tests ignore. gloo cannot resolve an address to a name. torch counts the process
groups that a fork inherits as new ones. bitsandbytes looks for a kernel on the hub when it is imported on a processor
with AVX512-BF16.
"""
PATIENCE = HUNG
"""A timeout in seconds, which only a hanging run reaches."""


@pytest.fixture(scope="module")
def pair(warm: Forks, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    why = missing()
    if why and os.environ.get("XPC_EVERY_TEST"):
        pytest.fail(why)
    if why:
        pytest.skip(why)
    with Nodes(str(tmp_path_factory.mktemp("nodes")), warm.python) as made:
        yield made


def two(location: str, name: str, *more: str, length: str = "4 steps", save: str = 'save "out" every=never') -> str:
    text = spec("nodes 2", *more, strategy="zero2", hardware="cpu", length=length, save=save)
    return compiled(text, location, os.path.join(location, f"{name}.bundle"), "two.xp")


def begin(
    pair: Nodes, bundle: str, node: int, cwd: str, *words: str, port: int = 29500, **variables: str
) -> subprocess.Popen[str]:
    variables = {"NODE_RANK": str(node), "MASTER_ADDR": ADDRESSES[0], "XPC_NODE_WAIT": "60", **variables}
    environ = environment(**{"PYTHON": pair.python, "MASTER_PORT": str(port), **variables})
    return pair.start(node, [os.path.join(bundle, "launch.sh"), *words], cwd, environ)


def both(pair: Nodes, bundle: str, cwd: str, *words: str, **variables: str) -> list[tuple[int, str]]:
    """Start the bundle on both nodes, and wait until both have ended. Return their exit statuses and outputs."""
    started = [begin(pair, bundle, node, cwd, *words, **variables) for node in (0, 1)]
    return [ended(one) for one in started]


def ended(one: subprocess.Popen[str], seconds: float = PATIENCE) -> tuple[int, str]:
    printed = one.communicate(timeout=seconds)[0]
    return one.returncode, "".join(
        line for line in printed.splitlines(True) if not any(words in line for words in NOISE)
    )


def losses(cwd: str) -> list[float]:
    return [one["loss"] for one in steps_of(cwd)]


@pytest.fixture(scope="module")
def alone(warm: Forks, location: str, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of the same run when both of its processes are on one machine."""
    bundle = compiled(spec(strategy="zero2", hardware="2 x cpu", length="4 steps"), location, f"{location}/one.bundle")
    run = launch(bundle, str(tmp_path_factory.mktemp("one")), PYTHON=warm.python)
    assert run.done.returncode == 0, run.output
    return run.losses


C10D = ("launch local(launcher=torchrun, rendezvous=c10d)",)


@pytest.mark.parametrize(
    ("name", "more", "named", "warmed", "rehearses"),
    [
        ("static", (), True, True, False),
        # the forks of the other cases start as these processes do
        pytest.param("static", (), True, False, False, marks=pytest.mark.nightly),
        ("c10d", C10D, False, True, False),
        # tests/launch/test_rehearsed_launch.py rehearses on one node
        pytest.param("c10d", C10D, False, True, True, marks=pytest.mark.nightly),
    ],
)
def test_two_nodes_train_as_one_does(
    pair: Nodes, location: str, tmp_path: Path, alone: list[float], name: str, more: tuple[str, ...], named: bool,
    warmed: bool, rehearses: bool,
) -> None:  # fmt: skip
    """Unless `named` is true, neither node's host name can be resolved to an address. Without the runtime, gloo would
    then listen only on the loopback interface.

    If `rehearses` is true, the run is rehearsed on both nodes first.
    """
    pair.name(named)
    cwd, python = str(tmp_path), pair.python if warmed else interpreter(DEFAULT)
    rehearsed = {"XPC_REHEARSE": "1"} if rehearses else {}
    (status, printed), (other, silent) = both(pair, two(location, name, *more), cwd, PYTHON=python, **rehearsed)
    assert (status, other) == (0, 0), f"{printed}\n{silent}"
    assert "[run] 2 nodes are connected; all-reduce over them: gloo " in printed
    assert printed.count("preflight passed") == (3 if rehearses else 1)
    assert printed.count("resuming from checkpoint-") == int(rehearses)
    assert "out.rehearsal" not in os.listdir(cwd)
    # In a c10d rendezvous, torch ranks the machines by their addresses. Here the addresses have the order of the node
    # ranks.
    spoken = [line for line in silent.splitlines() if "stopped as asked: the same command resumes" not in line]
    assert not spoken, "node 0 reports for both nodes"
    # The losses are equal to the last digit: each process computes what it would compute on one machine, and a sum of
    # two values does not depend on their order. With three processes it would depend on how gloo divides the buffer.
    assert losses(cwd) == alone
    assert len(alone) == 4


def test_findings_are_reported_once_and_in_time(pair: Nodes, location: str, tmp_path: Path) -> None:
    pair.name(True)
    cwd, bundle = str(tmp_path), two(location, "wrong")
    # node 1 was not started
    status, printed = ended(begin(pair, bundle, 0, cwd, "--preflight", XPC_NODE_WAIT="3"))
    assert status == 1
    assert printed.endswith("error: node 1 did not connect within 3 s\n")
    # another program has the port
    holder = pair.start(0, [interpreter(DEFAULT), "-c", TAKE, "29500"], cwd, os.environ)
    assert holder.stdout is not None
    holder.stdout.readline()
    (status, printed), (other, answer) = both(pair, bundle, cwd, "--preflight")
    pair.kill(holder)
    assert (status, other) == (1, 1)
    assert printed == (
        "error: port 29500 cannot be used for the rendezvous: Address already in use; set MASTER_PORT to a free port\n"
    )
    assert answer == "error: the program at 10.111.0.1:29500 is not node 0 of this run: it does not answer\n"


TAKE = "import socket, sys, time; s = socket.create_server(('', int(sys.argv[1]))); print(flush=True); time.sleep(600)"


def test_two_bundles_that_differ_and_folders_that_are_not_shared(
    pair: Nodes, location: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pair.name(True)
    folders = [str(tmp_path_factory.mktemp(f"node-{node}")) for node in (0, 1)]
    bundle, other = two(location, "one-of-two", save='save "out" every=2'), os.path.join(location, "changed.bundle")
    shutil.copytree(bundle, other)
    with open(os.path.join(other, "trainer", "core", "rows.py"), "a", encoding="utf-8") as handle:
        handle.write("# changed on this node\n")
    started = [begin(pair, one, node, folders[node]) for node, one in enumerate((bundle, other))]
    (status, printed), (second, answer) = [ended(one) for one in started]
    assert (status, second) == (1, 1)
    assert "error: 2 things stop this run:\n  - node 1 (second): its bundle is sha256:" in printed
    assert ": the file trainer/core/rows.py differs\n" in printed
    assert f"  - node 1 (second): this node does not see the output folder {folders[0]}/out of node 0" in printed
    assert answer.endswith("error: node 1 (second) stops with the others; node 0 says why\n")
    # the temporary file that tests whether the folder is shared is removed, too
    assert [os.listdir(one) for one in folders] == [[], []]


@pytest.mark.parametrize(
    ("dies", "words"),
    [
        (Nodes.kill, "process 0 stops: another process of the run has ended"),
        (Nodes.unplug, "process 0 stops: another process of the run does not answer ("),
    ],
)
def test_a_node_that_dies_ends_the_other(
    pair: Nodes, location: str, tmp_path: Path, dies: Callable[..., None], words: str
) -> None:
    """While a long run trains, every process of node 1 is killed, or its network is cut. A cut closes no connection, so
    node 0 ends only because a collective operation times out.
    """
    pair.name(True)
    text = ("launch local(nccl_timeout=60s)",) if dies is Nodes.unplug else ()
    cwd, bundle = str(tmp_path), two(location, f"long-{dies.__name__}", *text, length="5000 steps")
    started = [begin(pair, bundle, node, cwd) for node in (0, 1)]
    until = time.monotonic() + PATIENCE
    while not losses(cwd):
        assert time.monotonic() < until, "no step was made"
        assert started[0].poll() is None, ended(started[0])
        time.sleep(0.1)
    if dies is Nodes.unplug:
        pair.unplug(1)
    else:
        pair.kill(started[1])
    try:
        status, printed = ended(started[0])
    finally:
        pair.kill(started[1])
        pair.plug(1)
    assert status == 76, printed
    assert words in printed
