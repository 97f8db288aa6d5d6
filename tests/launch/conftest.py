"""Fixtures: a Slurm cluster on this machine, a warm interpreter, and a folder with a tiny model and its data."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))

from emitted import compiled  # noqa: E402
from forks import Forks, shared  # noqa: E402
from jobs import STEPS, spec  # noqa: E402
from slurm import Cluster, missing  # noqa: E402
from stacks import environment  # noqa: E402
from tiny import write_messages  # noqa: E402

from xpc.compiler.stacks import DEFAULT  # noqa: E402

TINY = os.path.join(os.path.dirname(HERE), "support", "tiny.py")


@pytest.fixture(scope="session")
def warm() -> Forks:
    """A warm interpreter: a process that has imported the libraries, and is forked for each run. Most runs get the path
    of its ``python`` in the variable PYTHON.
    """
    return shared(DEFAULT)


@pytest.fixture(scope="module")
def location(warm: Forks, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the tiny model and its data. The tests compile their specs in this folder."""
    folder = str(tmp_path_factory.mktemp("place"))
    words = [warm.python, TINY, os.path.join(folder, "tiny")]
    subprocess.run(words, check=True, env=environment(), capture_output=True)
    write_messages(os.path.join(folder, "messages.jsonl"), 64)
    return folder


@pytest.fixture(scope="module")
def alone(warm: Forks, location: str) -> Callable[[str], str]:
    """Return a function that trains with the given strategy in two processes on one node, and returns the run's folder.
    Each strategy is trained only once per test module.

    Tests compare runs on two nodes with this run.
    """
    done = {}

    def run(strategy: str) -> str:
        if strategy not in done:
            name = f"alone-{strategy}"
            text = spec(strategy, hardware="2 x cpu", nodes=1, steps=STEPS, more="")
            bundle = compiled(text, location, os.path.join(location, f"{name}.bundle"), f"{name}.xp")
            cwd = os.path.join(location, name)
            os.mkdir(cwd)
            output = warm.run(bundle, cwd, world=2)
            assert output["status"] == [0, 0], output["err"]
            done[strategy] = cwd
        return done[strategy]

    return run


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A Slurm cluster of four nodes. A run has two of them; the other two are for a vLLM server, or replace nodes that
    a test kills.
    """
    lacking = missing()
    if lacking:
        why = f"{', '.join(lacking)} of Debian's slurm-wlm and munge are not installed"
        if os.environ.get("XPC_EVERY_TEST"):
            pytest.fail(why)
        pytest.skip(why)
    # a short path, because the path of a Unix socket has at most 107 characters
    folder = tempfile.mkdtemp(prefix="slurm-")
    made = Cluster(folder, nodes=4)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
