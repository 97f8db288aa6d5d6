"""A node reads its rank, and sets the network interface for gloo. When a run ends, the launchers of the nodes end in
the right order.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from runtime_bundles import ROOT

from xpc.runtime.core.errors import RunError
from xpc.runtime.features.distributed import (
    node_network,
    node_protocol,
    node_rendezvous,
)
from xpc.runtime.features.distributed.node_protocol import Rendezvous
from xpc.runtime.library_internals import torch_distributed, torch_exit_barrier

VARIABLES = {"NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


def test_the_seat_is_read_from_the_environment() -> None:
    assert node_protocol.read_rendezvous(2, VARIABLES) == Rendezvous(1, 2, "10.0.0.1", 29500, 300)
    assert node_protocol.read_rendezvous(2, {**VARIABLES, "XPC_NODE_WAIT": "20"}) == Rendezvous(
        1, 2, "10.0.0.1", 29500, 20
    )
    assert node_protocol.read_rendezvous(1, VARIABLES) is None
    assert node_protocol.read_rendezvous(2, {}) is None
    assert node_protocol.read_rendezvous(2, {**VARIABLES, "WORLD_SIZE": "2"}) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"NODE_RANK": "-1"}, "NODE_RANK is '-1'; it must be a number"),
        ({"NODE_RANK": "٣"}, "must be a number"),
        ({"MASTER_PORT": "70000"}, "a port is from 1 to 65535"),
        ({"MASTER_PORT": ""}, "MASTER_PORT is ''"),
        ({"MASTER_ADDR": ""}, "set MASTER_ADDR to the address of node 0"),
        ({"XPC_NODE_WAIT": "long"}, "XPC_NODE_WAIT is 'long'"),
    ],
)
def test_a_seat_that_cannot_be(changes: dict[str, str], words: str) -> None:
    with pytest.raises(RunError, match=words.replace("(", "\\(")):
        node_protocol.read_rendezvous(2, {**VARIABLES, **changes})


def test_gloo_is_given_the_interface_that_the_others_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"lo0": [], "docker0": ["172.17.0.1"], "eth0": ["10.0.0.7"], "ib0": ["10.1.0.7"]}
    monkeypatch.setattr(node_network, "_interfaces", lambda: held)
    monkeypatch.setattr(node_network, "own_address", lambda toward, port: "10.1.0.7")
    environ = {"MASTER_ADDR": "10.1.0.1", "MASTER_PORT": "29500"}
    node_network.choose(environ)
    assert (environ["GLOO_SOCKET_IFNAME"], environ["PET_LOCAL_ADDR"]) == ("ib0", "10.1.0.7")
    own = {"MASTER_ADDR": "10.1.0.1", "GLOO_SOCKET_IFNAME": "eth0"}
    node_network.choose(own)
    assert own["GLOO_SOCKET_IFNAME"] == "eth0"
    monkeypatch.setattr(node_network, "own_address", lambda toward, port: None)
    nothing: dict[str, str] = {"MASTER_ADDR": "10.1.0.1"}
    node_network.choose(nothing)
    assert nothing == {"MASTER_ADDR": "10.1.0.1"}
    nowhere: dict[str, str] = {}
    node_network.choose(nowhere)
    assert nowhere == {}


def test_the_loopback_is_no_address_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Debian, a machine's own name is mapped to 127.0.1.1. With its name as MASTER_ADDR, node 0 would therefore
    listen only on the loopback interface.
    """
    found = node_network.own_address("127.0.1.1", 29500)
    assert found is None or not found.startswith("127.")
    monkeypatch.setattr(node_network, "resolve", refuse)
    monkeypatch.setattr(node_network, "NOWHERE", ("127.0.0.1", 9))
    monkeypatch.setattr(node_network, "_interfaces", lambda: {"docker0": ["172.17.0.1"], "eth0": ["10.0.0.7"]})
    assert node_network.own_address("nobody.invalid", 29500) == "10.0.0.7"


def refuse(*_: object) -> Any:
    raise socket.gaierror(-2, "Name or service not known")


def failing(error: OSError) -> Callable[..., Any]:
    def fail(*_: object) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "MASTER_ADDR is node-a, which this node cannot resolve"),
        (TimeoutError(), "node-a:29500 does not answer: the machine is down, or a firewall"),
        (OSError(113, "No route to host"), "node-a:29500 cannot be reached: No route to host"),
    ],
)
def test_why_node_0_is_not_reached(monkeypatch: pytest.MonkeyPatch, error: OSError, words: str) -> None:
    monkeypatch.setattr(node_network, "resolve", failing(error))
    with pytest.raises(RunError, match="^" + words):
        node_network.reach("node-a", 29500, time.monotonic())


@pytest.mark.slow
def test_every_process_group_waits_as_long_as_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process group has the timeout that the spec states. DeepSpeed makes a group of its own, to which torch
    would give the default (10 minutes with NCCL, 30 with gloo).
    """
    pytest.importorskip("torch")
    from torch.distributed import distributed_c10d

    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        monkeypatch.setattr(distributed_c10d, name, getattr(distributed_c10d, name))
    torch_distributed.one_timeout(timedelta(seconds=77))
    for backend in ("gloo", "nccl"):
        assert distributed_c10d._get_default_timeout(distributed_c10d.Backend(backend)) == timedelta(seconds=77)


@pytest.mark.slow
def test_node_0_leaves_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 0 hosts the rendezvous store.

    Other nodes may still need this store, so node 0 ends after all of them: a c10d rendezvous uses the store even while
    it shuts down, after the exit barrier.
    """
    pytest.importorskip("torch")
    from torch.distributed.elastic.agent.server import api

    output: list[str] = []

    class Store:
        def wait(self, keys: list[str], _: timedelta) -> None:
            output.append(f"waits for {', '.join(keys)}")

        def set(self, key: str, _: str) -> None:
            output.append(f"sets {key}")
            raise RuntimeError("the store has ended")

    for rank in (0, 2):
        handler = SimpleNamespace(shutdown=lambda: output.append("closes") is None)
        group = SimpleNamespace(group_world_size=3, group_rank=rank, spec=SimpleNamespace(rdzv_handler=handler))
        monkeypatch.setattr(api.SimpleElasticAgent, "_exit_barrier", lambda self: output.append("barrier"))
        torch_exit_barrier.last_to_leave({"NODE_RANK": str(rank)})
        api.SimpleElasticAgent._exit_barrier(SimpleNamespace(_worker_group=group, _store=Store()))
        assert handler.shutdown()
    assert output == [
        *("barrier", "closes", "waits for xpc/left/1, xpc/left/2"),
        *("barrier", "closes", "sets xpc/left/2"),
    ]


@pytest.mark.slow
def test_launchers_that_do_not_find_each_other_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from torch.distributed import DistStoreError
    from torch.distributed.elastic.rendezvous.api import RendezvousTimeoutError

    monkeypatch.delenv("MASTER_ADDR", raising=False)
    # no MASTER_ADDR means a single node, so there is no other launcher to look for
    assert node_rendezvous.rendezvous_failure(RendezvousTimeoutError()) is None
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert node_rendezvous.rendezvous_failure(ValueError("other")) is None
    assert "launchers did not meet at 10.0.0.1:29500 (RendezvousTimeoutError)" in str(
        node_rendezvous.rendezvous_failure(RendezvousTimeoutError())
    )
    assert "(timed out)" in str(node_rendezvous.rendezvous_failure(DistStoreError("timed out\nstack")))


STOP_REQUEST = """
import os, signal, sys
import psutil
sys.path.insert(0, {root!r})
from runtime import launcher
launcher.State.process = psutil.Process
launcher.State.started += [True] * {started}
signal.signal(signal.SIGTERM, launcher._forward_signal)
os.kill(os.getpid(), signal.SIGTERM)
print("it waits for the other nodes")
"""


@pytest.mark.parametrize(("started", "status"), [(True, 0), (False, 75)], ids=["processes done", "not started"])
def test_a_stop_request_without_processes(started: bool, status: int) -> None:
    """After a stop request, a node whose processes have all ended still waits for the other nodes at the exit barrier.
    If it ended at once, the others would wait there for 300 s."""
    code = STOP_REQUEST.format(root=ROOT, started=int(started))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout != "") == (status, started), done.stderr
