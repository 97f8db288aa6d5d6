"""The common preflight of several nodes. One process of each node connects to MASTER_ADDR:MASTER_PORT for some seconds.

Node 0 listens. Each other node connects and sends its facts and findings as a line of JSON. It then answers node 0's
questions about its clock and about a file, and takes part in a small all-reduce. At the end, node 0 sends whether the
run may start. Every wait has a timeout. The other nodes close their connections first. So no connection lingers on node
0, and the port is free for the run.
"""

import json
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...core.errors import RunError
from . import node_network

WAIT = 300
"""Node 0 and the other nodes wait this many seconds for each other. XPC_NODE_WAIT overrides this number."""
ANSWER = 120.0
"""Timeout in seconds for the answer of another node to a question. The all-reduce has its own, shorter timeout."""
HELLO = 20.0
"""Timeout in seconds for the first line of a node that has connected."""
GREETING = "xpc"
LARGEST = 2**24
"""A line may have at most this many bytes."""


@dataclass(frozen=True)
class Rendezvous:
    """This node's rank, the number of nodes, node 0's address and port, and the seconds to wait for other nodes."""

    rank: int
    nodes: int
    address: str
    port: int
    wait: int


def read_rendezvous(nodes: int, environ: Mapping[str, str]) -> Rendezvous | None:
    """Read this node's rank from the environment. None for a run on one node, or if a launcher started this process.

    Raises RunError for an invalid number or port.
    """
    if nodes < 2 or "WORLD_SIZE" in environ or "NODE_RANK" not in environ:
        return None
    numbers = {}
    for name, standard in (("NODE_RANK", ""), ("MASTER_PORT", ""), ("XPC_NODE_WAIT", str(WAIT))):
        text = environ.get(name) or standard
        if not (text.isascii() and text.isdigit()):
            raise RunError(f"{name} is {text!r}; it must be a number")
        numbers[name] = int(text)
    if not 0 < numbers["MASTER_PORT"] < 65536:
        raise RunError(f"MASTER_PORT is {numbers['MASTER_PORT']}; a port is from 1 to 65535")
    address = environ.get("MASTER_ADDR", "")
    if not address:
        raise RunError(f"this run has {nodes} nodes: set MASTER_ADDR to the address of node 0")
    return Rendezvous(numbers["NODE_RANK"], nodes, address, numbers["MASTER_PORT"], max(1, numbers["XPC_NODE_WAIT"]))


class Line:
    """A connection that carries lines of JSON. All its failures are OSErrors."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._reader = connection.makefile("rb")

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one line."""
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def read(self, seconds: float) -> dict[str, Any]:
        """The next line. Raises an OSError: TimeoutError, or ConnectionError at the end or for an invalid line."""
        self.connection.settimeout(max(0.1, seconds))
        text = self._reader.readline(LARGEST)
        if not text:
            raise ConnectionResetError("the connection has ended")
        try:
            message = json.loads(text)
        except ValueError as error:
            raise ConnectionAbortedError("its message is not JSON") from error
        if not isinstance(message, dict) or GREETING not in message:
            raise ConnectionAbortedError("its message does not come from a run of xpc")
        return message

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self.connection.close()


@dataclass
class Node:
    """Another node, as node 0 knows it: its rank, facts, findings and connection."""

    rank: int
    facts: Mapping[str, Any]
    found: list[str]
    line: Line | None = None

    @property
    def name(self) -> str:
        """The node's name in messages: `node 1 (host-a)`."""
        return f"node {self.rank} ({self.facts['host']})"


# node 0


def gather(listener: socket.socket, rendezvous: Rendezvous, mine: Node) -> tuple[list[Node], list[str]]:
    """Wait for the other nodes. Returns a pair: the connected nodes by rank, and problems with this set of nodes.

    The wait ends when all nodes are connected, at the timeout, or immediately if a node cannot belong to the run.
    """
    until = time.monotonic() + rendezvous.wait
    came = {0: mine}
    problems: list[str] = []
    while len(came) < rendezvous.nodes and not problems:
        left = until - time.monotonic()
        if left <= 0:
            break
        listener.settimeout(left)
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            break
        line = Line(connection)
        try:
            hello = line.read(HELLO)
            one = Node(int(hello["rank"]), dict(hello["facts"]), [str(text) for text in hello["found"]], line)
            dict(one.facts["files"]), dict(one.facts["versions"])  # another program's line lacks these keys
            host = str(one.facts["host"])
            if one.facts.get("token") == mine.facts["token"]:  # node 0 has connected to itself
                line.close()
                continue
            line.send({GREETING: 1, "ask": "wait"})  # Tells the node that it has reached node 0.
        except (OSError, KeyError, TypeError, ValueError):  # Another program connected, such as a port scanner.
            line.close()
            continue
        if one.rank in came:
            problems.append(f"{came[one.rank].facts['host']} and {host} both have NODE_RANK {one.rank}")
        elif not 0 <= one.rank < rendezvous.nodes:
            problems.append(f"{host} has NODE_RANK {one.rank}, and this run has the nodes 0 to {rendezvous.nodes - 1}")
        if problems:
            dismiss([*came.values(), one])
        came.setdefault(one.rank, one)
    missing = [rank for rank in range(rendezvous.nodes) if rank not in came]
    if missing and not problems:
        text = f"{_ranks(missing)} did not connect within {rendezvous.wait} s"
        if not node_network.is_own(rendezvous.address):
            text += f"; MASTER_ADDR is {rendezvous.address}, which is not an address of this node"
        problems.append(text)
    return [came[rank] for rank in sorted(came)], problems


def _ranks(missing: list[int]) -> str:
    shown = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    return f"node {shown}" if len(missing) == 1 else f"nodes {shown}"


def ask(one: Node, question: Mapping[str, object]) -> dict[str, Any]:
    """Ask a node one question and return the answer. If the node does not answer, return an empty dict, and add a
    finding to the node.
    """
    if one.line is None:
        return {}
    try:
        one.line.send({GREETING: 1, **question})
        return one.line.read(ANSWER)
    except OSError as error:
        one.found.append(
            f"the node ended before it answered a question about its {question['ask']} ({error.strerror or error})"
        )
        one.line.close()
        one.line = None
        return {}


def send(others: list[Node], question: Mapping[str, Any]) -> None:
    """Send a question to all nodes at once, so that they act at the same time. `receive` returns their answers."""
    for one in others:
        if one.line is not None:
            try:
                one.line.send({GREETING: 1, **question})
            except OSError:
                continue  # `receive` reports that the connection has ended


def receive(one: Node) -> dict[str, object]:
    """The answer to a question that `send` has sent. If the node does not answer, return an empty dict, and add a
    finding to the node.
    """
    if one.line is None:
        return {}
    try:
        return one.line.read(ANSWER)
    except OSError as error:
        one.found.append(f"it did not answer ({error.strerror or error})")
        return {}


def skew(one: Node, clock: Callable[[], float] = time.time) -> tuple[float, float]:
    """Return two numbers of seconds: how far a node's clock is ahead of this node's clock, and the possible error of
    the first number.

    The node reads its clock between question and answer, so the error is at most half of the round trip.
    """
    before = clock()
    answer = ask(one, {"ask": "clock"})
    after = clock()
    if "time" not in answer:
        return 0.0, 0.0
    return float(answer["time"]) - (before + after) / 2, (after - before) / 2


def dismiss(nodes: list[Node], passed: bool = False) -> None:
    """Send every node the result. Then wait until each node has closed its connection, so that the port is free."""
    for one in nodes:
        if one.line is not None:
            try:
                one.line.send({GREETING: 1, "ask": "end", "passed": passed})
            except OSError:
                continue
    until = time.monotonic() + 5
    for one in nodes:
        if one.line is not None:
            with suppress(OSError):
                # `read` returns or raises an OSError when the other node has closed the connection
                one.line.read(until - time.monotonic())
            one.line.close()
            one.line = None


# the other nodes


def visit(
    rendezvous: Rendezvous, mine: Node, answers: Mapping[str, Callable[[Mapping[str, object]], Mapping[str, object]]]
) -> bool:
    """Connect to node 0, answer its questions, and return whether the run may start.

    Raises RunError if node 0 cannot be reached, or closes the connection.
    """
    until = time.monotonic() + rendezvous.wait
    line, greeted = _reached(rendezvous, mine, until), False
    try:
        while not greeted:
            try:
                line.send({GREETING: 1, "rank": mine.rank, "facts": mine.facts, "found": mine.found})
                line.read(HELLO)
                greeted = True
            except TimeoutError as error:
                raise ConnectionAbortedError("it does not answer") from error
            except ConnectionResetError:
                # an earlier launch of node 0, which was ending, has answered, so connect again
                if time.monotonic() + 1 > until:
                    raise
                line.close()
                time.sleep(0.5)
                line = _reached(rendezvous, mine, until)
        while True:
            question = line.read(until - time.monotonic() + ANSWER)
            if question.get("ask") == "end":
                return bool(question["passed"])
            line.send({GREETING: 1, **answers[str(question.get("ask"))](question)})
    except TimeoutError as error:
        raise RunError(f"node 0 was reached, but sent nothing for {rendezvous.wait + ANSWER:.0f} s") from error
    except ConnectionAbortedError as error:
        raise RunError(
            f"the program at {rendezvous.address}:{rendezvous.port} is not node 0 of this run: {error}"
        ) from error
    except OSError as error:
        raise RunError(f"node 0 closed the connection in the preflight ({error.strerror or error})") from error
    finally:
        line.close()


def _reached(rendezvous: Rendezvous, mine: Node, until: float) -> Line:
    """Connect to node 0. Raises RunError if there is no connection before ``until``."""
    try:
        return Line(node_network.reach(rendezvous.address, rendezvous.port, until))
    except RunError as error:
        raise RunError(f"{mine.name} did not reach node 0 within {rendezvous.wait} s: {error}") from error


def report_misplaced(rendezvous: Rendezvous, mine: Node) -> None:
    """Report to the node that listens at MASTER_ADDR, if there is one, that this node has a wrong rank.

    Called on a second node 0, and on a node whose rank is too high. Without the report, node 0 would wait until the
    timeout for a node with the right rank.
    """
    patience = Rendezvous(rendezvous.rank, rendezvous.nodes, rendezvous.address, rendezvous.port, 5)
    try:
        visit(patience, mine, {})
    except (RunError, KeyError):
        return
