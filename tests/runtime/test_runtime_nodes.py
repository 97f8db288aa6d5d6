"""Before a run, its nodes connect to each other; threads simulate them here. Node 0 reports a missing or wrong node,
and also what the other nodes have found.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_features import read
from runtime_bundles import plan, source, write

from xpc.runtime.core import errors
from xpc.runtime.core.errors import RunError
from xpc.runtime.core.feature import Bundle
from xpc.runtime.features.distributed import (
    node_all_reduce,
    node_facts,
    node_protocol,
    node_rendezvous,
    shared_folder,
)
from xpc.runtime.features.distributed.node_protocol import Node, Rendezvous

pytestmark = pytest.mark.slow
REDUCE = node_all_reduce.reduce


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    monkeypatch.chdir(tmp_path)
    return made(tmp_path / "bundle")


def made(folder: Path) -> Bundle:
    os.makedirs(folder)
    facts_ = plan("tiny", [source("d.jsonl")])
    facts_["run"].update(nodes=2, world_size=2, gbs=16)
    return read(write(str(folder), facts_))


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fixture for a process that has no process group yet. No node's output is suppressed, and a stub replaces the
    all-reduce."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(errors, "muted", False)
    monkeypatch.setattr(node_rendezvous, "mute", lambda: None)
    monkeypatch.setattr(node_all_reduce, "store", lambda address, port=0: type("Store", (), {"port": 1}))
    monkeypatch.setattr(node_all_reduce, "reduce", lambda bundle, rank, count, meeting, out: out.update(gloo=1.0))


def rendezvous(rank: int, port: int, count: int = 2, wait: int = 3, address: str = "127.0.0.1") -> Rendezvous:
    return Rendezvous(rank, count, address, port, wait)


def hold(seats: list[Rendezvous], bundles: list[Bundle], found: list[list[str]]) -> list[str]:
    """Let all nodes connect at the same time. Return the error of each node, or "" for a node without an error."""
    output = [""] * len(seats)

    def one(index: int) -> None:
        try:
            node_rendezvous.meet(bundles[index], seats[index], lambda: list(found[index]))
        except RunError as error:
            output[index] = str(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(seats))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return output


def test_nodes_that_agree_pass_and_the_port_is_free(
    bundle: Bundle, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # the second rendezvous can use the port at once
        assert hold([rendezvous(rank, port, 3) for rank in range(3)], [bundle] * 3, [[], [], []]) == ["", "", ""]
    assert capsys.readouterr().out.splitlines()[-1] == "[run] 3 nodes are connected; all-reduce over them: gloo 1 GB/s"
    assert not os.path.exists(bundle.output_dir)
    assert [name for name in os.listdir(os.path.dirname(bundle.output_dir)) if name.startswith(".xpc")] == []


def test_all_reduce_of_cpu_nodes_prints_no_warning_of_torch(bundle: Bundle, capfd: pytest.CaptureFixture[str]) -> None:
    """Importing torch's FSDP registers a backend "fake", with which torch warns about a group of the backend "cpu:gloo"
    when the group ends.
    """
    from torch.distributed import TCPStore
    from torch.testing._internal.distributed import fake_pg  # noqa: F401 - registers the backend

    out: dict[str, Any] = {}
    REDUCE(bundle, 0, 1, TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), out)
    assert out["gloo"] == 0
    assert "No backend" not in capfd.readouterr().err


def test_findings_are_reported_by_node_0_with_their_nodes(bundle: Bundle, port: int) -> None:
    seats, host = [rendezvous(rank, port, 3) for rank in range(3)], socket.gethostname()
    output = hold(seats, [bundle] * 3, [["no disk"], ["no disk", "no GPU"], ["no disk", "no data"]])
    assert output == [
        f"3 things stop this run:\n  - every node: no disk\n  - node 1 ({host}): no GPU\n  - node 2 ({host}): no data",
        f"node 1 ({host}) stops with the others; node 0 says why",
        f"node 2 ({host}) stops with the others; node 0 says why",
    ]
    many = hold(seats, [bundle] * 3, [[], ["no GPU"], ["no GPU"]])[0]
    assert many == "2 nodes (1, 2): no GPU"


def test_a_check_that_breaks_does_not_leave_the_others_waiting(bundle: Bundle, port: int) -> None:
    class Broken(list[str]):
        def __iter__(self) -> Iterator[str]:
            raise KeyError("params")

    output = hold([rendezvous(0, port, wait=300), rendezvous(1, port, wait=300)], [bundle] * 2, [[], Broken()])
    assert "its check failed (KeyError: 'params')" in output[0]
    assert "stops with the others" in output[1]


def test_who_is_missing_is_reported_in_time(bundle: Bundle, port: int) -> None:
    output = hold([rendezvous(0, port, 4, wait=1), rendezvous(2, port, 4, wait=1)], [bundle] * 2, [[], ["no GPU"]])
    assert output[0].splitlines()[1:] == [
        "  - nodes 1, 3 did not connect within 1 s",
        f"  - node 2 ({socket.gethostname()}): no GPU",
    ]
    assert "stops with the others" in output[1]
    alone = hold([rendezvous(1, port, wait=1)], [bundle], [["no GPU"]])
    assert f"did not reach node 0 within 1 s: nothing listens on 127.0.0.1:{port}" in alone[0]
    assert "that is an address of this node itself" in alone[0]
    assert alone[0].endswith("- no GPU")  # node 0 also reports its own findings


def test_a_node_number_used_twice_or_too_high_is_refused(bundle: Bundle, port: int) -> None:
    host = socket.gethostname()
    started = time.monotonic()
    output = hold(
        [rendezvous(0, port, 3, 900), rendezvous(1, port, 3, 900), rendezvous(1, port, 3, 900)],
        [bundle] * 3,
        [[], [], []],
    )
    assert f"{host} and {host} both have NODE_RANK 1" in output[0]
    assert all("stops with the others" in one for one in output[1:])
    output = hold([rendezvous(0, port, wait=900), rendezvous(7, port, wait=900)], [bundle] * 2, [[], []])
    assert output[0] == f"{host} has NODE_RANK 7, and this run has the nodes 0 to 1"
    assert output[1] == "NODE_RANK is 7, and this run has the nodes 0 to 1"
    assert time.monotonic() - started < 600, "the nodes must not wait for a node with the right number"


def test_a_taken_port_names_who_has_it(bundle: Bundle, port: int) -> None:
    with socket.create_server(("", port)):
        output = hold([rendezvous(0, port)], [bundle], [[]])
    assert output[0].startswith(f"port {port} cannot be used for the rendezvous: Address already in use (by process ")
    assert f"process {os.getpid()}," in output[0]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"[1]\n", b"\xff\xfe\n", b"{}\n"])
def test_another_program_at_the_port_is_not_taken_for_node_0(bundle: Bundle, port: int, answer: bytes) -> None:
    with socket.create_server(("", port)) as other:

        def speak() -> None:
            connection, _ = other.accept()
            connection.recv(100)
            connection.sendall(answer)
            connection.recv(10**6)
            connection.close()

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        output = hold([rendezvous(1, port)], [bundle], [[]])
        thread.join(10)
    assert output[0].startswith(f"the program at 127.0.0.1:{port} is not node 0 of this run")


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (True, "node 0 closed the connection in the preflight ("),
        (False, "node 0 was reached, but sent nothing for "),
    ],
)
def test_a_node_0_that_ends_or_hangs_after_its_greeting_is_one_sentence(
    bundle: Bundle, port: int, monkeypatch: pytest.MonkeyPatch, ends: bool, words: str
) -> None:
    monkeypatch.setattr(node_protocol, "ANSWER", 0.2)
    done = threading.Event()
    with socket.create_server(("", port)) as other:

        def greet() -> None:
            connection, _ = other.accept()
            connection.recv(10**6)
            connection.sendall(b'{"xpc": 1}\n')
            if ends:
                time.sleep(0.1)
            else:
                done.wait(60)
            connection.close()

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        output = hold([rendezvous(1, port, wait=0)], [bundle], [[]])
        done.set()
        thread.join(10)
    assert output[0].startswith(words)


NOBODY = b'{"xpc": 1, "rank": 1, "facts": {"host": "nobody"}, "found": []}\n'


def test_strangers_do_not_disturb_the_meeting(bundle: Bundle, port: int) -> None:
    knocked = threading.Event()

    class Late(list[str]):
        """The second machine, NODE_RANK 1. It connects only after other programs have connected."""

        def __iter__(self) -> Iterator[str]:
            knocked.wait(300)
            return super().__iter__()

    def knock() -> None:
        until = time.monotonic() + 300
        for text in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00\x01\n", b'{"xpc": 1, "rank": "x"}\n', NOBODY):
            while time.monotonic() < until:
                try:
                    with socket.create_connection(("127.0.0.1", port)) as one:
                        one.sendall(text)
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
        knocked.set()

    thread = threading.Thread(target=knock)
    thread.start()
    output = hold([rendezvous(0, port, wait=300), rendezvous(1, port, wait=300)], [bundle, bundle], [[], Late()])
    thread.join()
    assert knocked.is_set()
    assert output == ["", ""]


def test_bundles_and_versions_that_differ_are_named(bundle: Bundle, port: int, tmp_path: Path) -> None:
    other = made(tmp_path / "other")
    with open(os.path.join(other.folder, "accelerate.yaml"), "a", encoding="utf-8") as handle:
        handle.write("# by hand\n")
    output = hold([rendezvous(0, port), rendezvous(1, port)], [bundle, other], [[], []])
    assert ": its bundle is sha256:" in output[0]
    assert output[0].endswith("the file accelerate.yaml differs")
    first, second = node_facts.local_facts(bundle), node_facts.local_facts(bundle)
    assert node_facts.differences(first, second) == []
    second["versions"] = {**second["versions"], "Python": "3.99"}
    second["files"] = {}
    reported = node_facts.differences(first, second)
    assert "that of node 0 is sha256:" in reported[0]
    assert " more differ" in reported[0]
    assert reported[1:] == [f"Python is 3.99, and {first['versions']['Python']} on node 0"]


def test_the_digest_covers_the_runtime_and_what_the_manifest_names(bundle: Bundle) -> None:
    assert {
        "trainer_args.json",
        "accelerate.yaml",
        "trainer/core/run.py",
        "trainer/features/distributed/node_protocol.py",
    } <= set(node_facts.contents(bundle))
    with open(os.path.join(bundle.folder, "bundle.toml"), "w", encoding="utf-8") as handle:
        handle.write('[files]\n"README.md" = "sha256:1"\n"data/rows.jsonl" = "sha256:2"\n')
    files = node_facts.contents(bundle)
    assert files["data/rows.jsonl"] == "sha256:2"
    assert "bundle.toml" in files
    # this node's bundle lacks README.md
    assert "README.md" not in files


def test_a_clock_is_compared_within_the_round_trip() -> None:
    near, far = socket.socketpair()
    node = Node(1, {"host": "second"}, [], node_protocol.Line(near))
    other = node_protocol.Line(far)
    clock = iter([100.0, 102.0])

    def answer() -> None:
        other.read(5)
        other.send({"xpc": 1, "time": 131.0})

    thread = threading.Thread(target=answer)
    thread.start()
    assert node_protocol.skew(node, lambda: next(clock)) == (30.0, 1.0)
    thread.join()
    other.close()
    assert node_protocol.ask(node, {"ask": "clock"}) == {}
    assert node.found[0].startswith("the node ended before it answered a question about its clock")
    node.found.clear()
    assert node_protocol.receive(node) == {}


def test_a_clock_that_is_off_is_a_warning(
    bundle: Bundle, port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds, error, output in ((-40.0, 0.1, "40 s behind"), (6.0, 0.5, "6 s ahead of"), (6.0, 2.0, "")):
        monkeypatch.setattr(node_protocol, "skew", lambda one, found=(seconds, error): found)
        assert hold([rendezvous(0, port), rendezvous(1, port)], [bundle] * 2, [[], []]) == ["", ""]
        reported = f"warning: the clock of node 1 ({socket.gethostname()}) is {output} node 0's"
        assert (reported if output else "") in (out := capsys.readouterr().out)
        assert ("the clock" in out) is bool(output)


def test_a_folder_that_another_node_does_not_see(
    bundle: Bundle, port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_folder, "sees", lambda *_: False)
    output = hold([rendezvous(0, port), rendezvous(1, port)], [bundle] * 2, [[], []])
    assert output[0].endswith(
        f"this node does not see the output folder {bundle.output_dir} of node 0, and every process writes its part of "
        "a checkpoint there; start from a folder that all nodes share"
    )
    for none in ({"save_strategy": "no"}, {"save_only_model": True}):
        monkeypatch.setattr(bundle, "arguments", {**bundle.arguments, **none})
        assert hold([rendezvous(0, port), rendezvous(1, port)], [bundle] * 2, [[], []]) == ["", ""]
        assert "could not save there" in capsys.readouterr().out
        assert shared_folder.needed(bundle) == ""


def test_the_file_that_shows_a_shared_folder(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "PATIENCE", 0.2)
    with shared_folder.Probe(bundle) as probe:
        assert probe.levels == 1  # the output folder does not exist yet
        assert shared_folder.sees(bundle, probe.name, probe.levels)
        assert not shared_folder.sees(bundle, probe.name, 0)
        assert not shared_folder.sees(bundle, "../" + probe.name, 1)
    assert not shared_folder.sees(bundle, probe.name, probe.levels)
    os.mkdir(bundle.output_dir)
    with shared_folder.Probe(bundle) as probe:
        assert probe.levels == 0
        assert shared_folder.sees(bundle, probe.name, 0)
    os.rmdir(bundle.output_dir)
    monkeypatch.setattr(shared_folder, "PREFIX", "no/such/folder/")
    with shared_folder.Probe(bundle) as probe:
        assert probe.error.startswith("cannot write to ")


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ({"trying": "gloo", "error": "no route"}, "gloo does not connect the nodes (no route); set GLOO_SOCKET_IFNAME"),
        ({"trying": "nccl", "error": "refused"}, "nccl does not connect the nodes (refused); set NCCL_SOCKET_IFNAME"),
        # gloo is the first backend that a node tries. So a message about a node that has tried no backend names gloo.
        ({"error": "no port"}, "gloo does not connect the nodes (no port); set GLOO_SOCKET_IFNAME"),
    ],
)
def test_an_all_reduce_that_fails_stops_the_run(
    bundle: Bundle, port: int, monkeypatch: pytest.MonkeyPatch, out: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(node_all_reduce, "bounded", lambda work: dict(out))
    monkeypatch.setattr(node_all_reduce, "thread_hangs", False)
    output = hold([rendezvous(0, port), rendezvous(1, port)], [bundle] * 2, [[], []])
    assert output[0].startswith(f"every node: {words}")


def test_a_slow_network_is_reported_in_the_line() -> None:
    assert node_all_reduce.speeds({"gloo": 0.05}) == "gloo 0.05 GB/s, which is slow (below 0.1)"
    assert node_all_reduce.speeds({"gloo": 1.25, "nccl": 41.0}) == "gloo 1.2 GB/s, nccl 41 GB/s"


def test_work_that_hangs_or_fails_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_all_reduce, "thread_hangs", False)
    begun, gate = threading.Event(), threading.Event()

    class Thread(threading.Thread):
        """A thread with a time limit that starts when the thread really begins to run. So a busy machine does not
        shorten it.
        """

        def start(self) -> None:
            super().start()
            begun.wait(600)

    def hangs(out: dict[str, Any]) -> None:
        out["trying"] = "nccl"
        begun.set()
        gate.wait(600)

    monkeypatch.setattr(node_all_reduce.threading, "Thread", Thread)
    reported = node_all_reduce.bounded(hangs, 0.1)
    gate.set()
    assert reported == {"trying": "nccl", "error": "no result within 0 s"}
    assert node_all_reduce.thread_hangs

    def fails(out: dict[str, Any]) -> None:
        raise RuntimeError("first line\nsecond line")

    assert node_all_reduce.bounded(fails) == {"error": "first line"}
    assert node_all_reduce.bounded(lambda out: out.update(gloo=2.0)) == {"gloo": 2.0}
