"""The nodes of a run meet before it starts: one process of each, on MASTER_ADDR:MASTER_PORT, for some seconds.

Node 0 listens; each other node comes, says its facts and findings in a line of JSON, answers what it is asked (its
clock, whether it sees a file, a tiny all-reduce), and is told whether the run may start. Every wait has an end. The
port is free again when the meeting is over: the others close their ends first, so that nothing of it lingers on node 0.
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
"""Seconds that node 0 waits for the others, and they for it; XPC_NODE_WAIT says another number."""
ANSWER = 120.0
"""Seconds that one question may take: the all-reduce has a shorter timeout of its own."""
HELLO = 20.0
"""Seconds for the line of a node that has connected."""
GREETING = "xpc"
LARGEST = 2**24
"""Of a line, bytes."""


@dataclass(frozen=True)
class Seat:
    """This process's place among the nodes."""

    rank: int
    nodes: int
    address: str
    port: int
    wait: int


def read_seat(nodes: int, environ: Mapping[str, str]) -> Seat | None:
    """The place that launch.sh was given; None for one node, and for a process that a launcher has started already.

    Raises RunError for a number that is none, or a port that cannot be.
    """
    if nodes < 2 or "WORLD_SIZE" in environ or "NODE_RANK" not in environ:
        return None
    numbers = {}
    for name, standard in (("NODE_RANK", ""), ("MASTER_PORT", ""), ("XPC_NODE_WAIT", str(WAIT))):
        text = environ.get(name) or standard
        if not (text.isascii() and text.isdigit()):
            raise RunError(f"{name} is {text!r}, and should be a number")
        numbers[name] = int(text)
    if not 0 < numbers["MASTER_PORT"] < 65536:
        raise RunError(f"MASTER_PORT is {numbers['MASTER_PORT']}, and a port is 1 to 65535")
    address = environ.get("MASTER_ADDR", "")
    if not address:
        raise RunError(f"this run has {nodes} nodes: set MASTER_ADDR to the address of node 0")
    return Seat(numbers["NODE_RANK"], nodes, address, numbers["MASTER_PORT"], max(1, numbers["XPC_NODE_WAIT"]))


class Line:
    """A connection that carries lines of JSON. Every failure of it is an OSError."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._reader = connection.makefile("rb")

    def send(self, message: Mapping[str, Any]) -> None:
        """Writes one line."""
        self.connection.sendall(json.dumps(message).encode() + b"\n")

    def read(self, seconds: float) -> dict[str, Any]:
        """The next line. Raises OSError: TimeoutError, ConnectionError at the end, or for what is no such line."""
        self.connection.settimeout(max(0.1, seconds))
        text = self._reader.readline(LARGEST)
        if not text:
            raise ConnectionResetError("the connection has ended")
        try:
            message = json.loads(text)
        except ValueError as error:
            raise ConnectionAbortedError("what was said is not JSON") from error
        if not isinstance(message, dict) or GREETING not in message:
            raise ConnectionAbortedError("what was said is not of a run")
        return message

    def close(self) -> None:
        """Ends it."""
        self._reader.close()
        self.connection.close()


@dataclass
class Node:
    """One node as node 0 knows it."""

    rank: int
    facts: Mapping[str, Any]
    found: list[str]
    line: Line | None = None

    @property
    def name(self) -> str:
        """Its number and its host."""
        return f"node {self.rank} ({self.facts['host']})"


# node 0


def gather(listener: socket.socket, seat: Seat, mine: Node) -> tuple[list[Node], list[str]]:
    """All nodes that came, in order, and what is wrong with the set of them.

    Ends when all are there, at the end of the wait, or at once when one came that cannot belong to the run.
    """
    until = time.monotonic() + seat.wait
    came = {0: mine}
    problems: list[str] = []
    while len(came) < seat.nodes and not problems:
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
            dict(one.facts["files"]), dict(one.facts["versions"])  # a line of another program has none
            host = str(one.facts["host"])
            if one.facts.get("token") == mine.facts["token"]:  # this node itself, through an address that leads back
                line.close()
                continue
            line.send({GREETING: 1, "ask": "wait"})  # so that a node knows whom it has reached
        except (OSError, KeyError, TypeError, ValueError):  # a port scan, a health check, another program
            line.close()
            continue
        if one.rank in came:
            problems.append(f"{came[one.rank].facts['host']} and {host} both have NODE_RANK {one.rank}")
        elif not 0 <= one.rank < seat.nodes:
            problems.append(f"{host} has NODE_RANK {one.rank}, and this run has the nodes 0 to {seat.nodes - 1}")
        if problems:
            dismiss([*came.values(), one])
        came.setdefault(one.rank, one)
    missing = [rank for rank in range(seat.nodes) if rank not in came]
    if missing and not problems:
        text = f"{_ranks(missing)} did not come within {seat.wait} s"
        if not node_network.is_own(seat.address):
            text += f"; MASTER_ADDR is {seat.address}, which is no address of this node"
        problems.append(text)
    return [came[rank] for rank in sorted(came)], problems


def _ranks(missing: list[int]) -> str:
    shown = ", ".join(map(str, missing[:8])) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    return f"node {shown}" if len(missing) == 1 else f"nodes {shown}"


def ask(one: Node, question: Mapping[str, Any]) -> dict[str, Any]:
    """A node's answer to one question; a node that does not answer gets a finding, and the answer is empty."""
    if one.line is None:
        return {}
    try:
        one.line.send({GREETING: 1, **question})
        return one.line.read(ANSWER)
    except OSError as error:
        one.found.append(f"it ended while it was asked about its {question['ask']} ({error.strerror or error})")
        one.line.close()
        one.line = None
        return {}


def send(others: list[Node], question: Mapping[str, Any]) -> None:
    """Asks all at once, for what they do together; `hear` gets the answers."""
    for one in others:
        if one.line is not None:
            try:
                one.line.send({GREETING: 1, **question})
            except OSError:
                continue  # `hear` finds the connection ended


def receive(one: Node) -> dict[str, Any]:
    """The answer to what `send` asked; empty, with a finding, when there is none."""
    if one.line is None:
        return {}
    try:
        return one.line.read(ANSWER)
    except OSError as error:
        one.found.append(f"it did not answer ({error.strerror or error})")
        return {}


def skew(one: Node, clock: Callable[[], float] = time.time) -> tuple[float, float]:
    """How far a node's clock is ahead of this one's, in seconds, and by how much that may be wrong.

    The answer was read off between question and reply: half of the round trip is the error at most.
    """
    before = clock()
    answer = ask(one, {"ask": "clock"})
    after = clock()
    if "time" not in answer:
        return 0.0, 0.0
    return float(answer["time"]) - (before + after) / 2, (after - before) / 2


def dismiss(nodes: list[Node], passed: bool = False) -> None:
    """Tells every node how it ended, and waits until each has gone: the port is free then."""
    for one in nodes:
        if one.line is not None:
            try:
                one.line.send({GREETING: 1, "ask": "end", "passed": passed})
            except OSError:
                continue
    until = time.monotonic() + 5
    for one in nodes:
        if one.line is not None:
            with suppress(OSError):  # the end of the connection is what is waited for
                one.line.read(until - time.monotonic())
            one.line.close()
            one.line = None


# the other nodes


def visit(seat: Seat, mine: Node, answers: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]) -> bool:
    """Comes to node 0, answers what is asked, and returns whether the run may start.

    Raises RunError when node 0 cannot be reached, or goes away.
    """
    until = time.monotonic() + seat.wait
    try:
        line = Line(node_network.reach(seat.address, seat.port, until))
    except RunError as error:
        raise RunError(f"{mine.name} did not reach node 0 within {seat.wait} s: {error}") from error
    try:
        line.send({GREETING: 1, "rank": mine.rank, "facts": mine.facts, "found": mine.found})
        try:
            line.read(HELLO)
        except TimeoutError as error:
            raise ConnectionAbortedError("it does not answer") from error
        while True:
            question = line.read(until - time.monotonic() + ANSWER)
            if question.get("ask") == "end":
                return bool(question["passed"])
            line.send({GREETING: 1, **answers[str(question.get("ask"))](question)})
    except TimeoutError as error:
        raise RunError(f"node 0 came, and said nothing for {seat.wait + ANSWER:.0f} s") from error
    except ConnectionAbortedError as error:
        raise RunError(f"what listens on {seat.address}:{seat.port} is not node 0 of this run: {error}") from error
    except OSError as error:
        raise RunError(f"node 0 went away while the nodes met ({error.strerror or error})") from error
    finally:
        line.close()


def report_misplaced(seat: Seat, mine: Node) -> None:
    """Tells the node that listens at MASTER_ADDR that this one cannot belong to it, where there is one.

    Of a second node 0, and of a number beyond the last node's: node 0 would wait for the right one until the end.
    """
    patience = Seat(seat.rank, seat.nodes, seat.address, seat.port, 5)
    try:
        visit(patience, mine, {})
    except (RunError, KeyError):
        return
