"""The preflight of several nodes: the findings of each node, common checks, and one result for all nodes. Node 0
reports the result.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ...core import errors
from ...core.errors import RunError, findings, say, stop
from ...core.feature import Bundle, Feature
from . import node_all_reduce, node_facts, node_network, node_protocol, shared_folder
from .node_protocol import Node, Rendezvous

SKEW = 5.0
"""A warning is printed if two clocks differ by more than this many seconds plus the error of the measurement."""
HINTS = {
    "gloo": "set GLOO_SOCKET_IFNAME to the network interface between the nodes (now {interface})",
    "nccl": "set NCCL_SOCKET_IFNAME to the network interface between the nodes; NCCL_DEBUG=INFO shows more",
}


class NodeRendezvous(Feature):
    """Hooks for a run on several nodes."""

    def check_nodes(self, bundle: Bundle, check: Callable[[int], list[str]]) -> bool:
        """If launch.sh gave this node a rank, check all nodes together; all raise RunError if one has a problem."""
        rendezvous = node_protocol.read_rendezvous(bundle.run["nodes"], os.environ)
        if rendezvous is not None:
            meet(bundle, rendezvous, lambda: check(rendezvous.rank))
        elif "WORLD_SIZE" not in os.environ:
            say("only this node is checked: set NODE_RANK, MASTER_ADDR and MASTER_PORT to check all nodes")
        return rendezvous is not None

    def launch_failed(self, bundle: Bundle, error: Exception) -> list[tuple[str, int]]:
        """If the nodes' launchers did not find each other, print and return this failure; [] for another failure."""
        reason = rendezvous_failure(error)
        return [] if reason is None else [("", stop(RunError(reason)))]


def meet(bundle: Bundle, rendezvous: Rendezvous, check: Callable[[], list[str]]) -> None:
    """Run each node's own checks (`check`), then the checks that concern all nodes. Raises RunError on every node.

    Node 0's error has the findings of all nodes. Another node's error says that it stops because of a finding, or why
    it did not connect.
    """
    mine = Node(rendezvous.rank, {**node_facts.local_facts(bundle), "token": secrets.token_hex(8)}, [])
    if rendezvous.rank >= rendezvous.nodes:
        node_protocol.report_misplaced(rendezvous, mine)
        raise RunError(f"NODE_RANK is {rendezvous.rank}, and this run has the nodes 0 to {rendezvous.nodes - 1}")
    if rendezvous.rank == 0:
        _first(bundle, rendezvous, mine, check)
    else:
        mute()
        _other(bundle, rendezvous, mine, check)


def mute() -> None:
    """Print only errors in this process, because node 0 prints the messages."""
    errors.muted = True


def _local_findings(check: Callable[[], list[str]]) -> list[str]:
    """The findings of ``check``. An exception becomes a finding: otherwise the other nodes would wait for this one."""
    try:
        return check()
    except Exception as error:
        return [f"its check failed ({type(error).__name__}: {error})"]


def _first(bundle: Bundle, rendezvous: Rendezvous, mine: Node, check: Callable[[], list[str]]) -> None:
    listener = node_network.listen(rendezvous.port)
    gathered: list[tuple[list[Node], list[str]]] = []
    thread = threading.Thread(
        target=lambda: gathered.append(node_protocol.gather(listener, rendezvous, mine)), daemon=True
    )
    thread.start()  # while this node runs its own checks, other nodes can already connect
    if not node_network.is_own(rendezvous.address):
        node_protocol.report_misplaced(rendezvous, mine)
    mine.found += _local_findings(check)
    thread.join()
    came, problems = gathered[0]
    others = came[1:]
    notes: list[str] = []
    for one in others:
        one.found += node_facts.differences(mine.facts, one.facts)
    if not problems:
        _together(bundle, rendezvous, came, notes)
    problems += labelled(came, rendezvous.nodes)
    node_protocol.dismiss(others, passed=not problems)
    listener.close()
    for note in notes:
        say(note)
    if problems:
        _end(findings(problems))


def _other(bundle: Bundle, rendezvous: Rendezvous, mine: Node, check: Callable[[], list[str]]) -> None:
    def group(question: Mapping[str, Any]) -> dict[str, Any]:
        def work(out: dict[str, Any]) -> None:
            meeting = node_all_reduce.store(rendezvous.address, int(question["port"]))
            node_all_reduce.reduce(bundle, rendezvous.rank, rendezvous.nodes, meeting, out)

        return node_all_reduce.bounded(work)

    answers: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
        "clock": lambda _: {"time": time.time()},
        "folder": lambda question: {"sees": shared_folder.sees(bundle, str(question["name"]), int(question["levels"]))},
        "group": group,
    }
    mine.found += _local_findings(check)
    try:
        passed = node_protocol.visit(rendezvous, mine, answers)
    except RunError as error:
        _end(findings([str(error), *mine.found]))
    else:
        if not passed:
            _end(RunError(f"{mine.name} stops with the others; node 0 says why"))


def _end(error: RunError) -> NoReturn:
    """Raise the error, and mark it as an error that this node prints itself."""
    error.local = True
    node_all_reduce.end(error)


def _together(bundle: Bundle, rendezvous: Rendezvous, came: list[Node], notes: list[str]) -> None:
    """The common checks: clocks, the output folder, and an all-reduce."""
    mine, others = came[0], came[1:]
    for one in others:
        ahead, error = node_protocol.skew(one)
        if abs(ahead) - error > SKEW:
            way = "ahead of" if ahead > 0 else "behind"
            notes.append(f"warning: the clock of {one.name} is {abs(ahead):.0f} s {way} node 0's")
    _folder(bundle, mine, others, notes)
    if any(one.found for one in came):
        return
    meeting = node_all_reduce.store("127.0.0.1")
    node_protocol.send(others, {"ask": "group", "port": meeting.port})
    out = node_all_reduce.bounded(lambda out: node_all_reduce.reduce(bundle, 0, rendezvous.nodes, meeting, out))
    results = [out, *(node_protocol.receive(one) for one in others)]
    for one, result in zip(came, results, strict=True):
        if "error" in result:
            backend = str(result.get("trying", "gloo"))
            hint = HINTS[backend].format(interface=os.environ.get("GLOO_SOCKET_IFNAME", "chosen by gloo"))
            one.found.append(f"{backend} does not connect the nodes ({result['error']}); {hint}")
    if not any(one.found for one in came):
        notes.append(f"{rendezvous.nodes} nodes are connected; all-reduce over them: {node_all_reduce.speeds(out)}")


def _folder(bundle: Bundle, mine: Node, others: Sequence[Node], notes: list[str]) -> None:
    with shared_folder.Probe(bundle) as probe:
        if probe.error:
            mine.found.append(probe.error)
            return
        node_protocol.send(list(others), {"ask": "folder", "name": probe.name, "levels": probe.levels})
        blind = [one for one in others if not node_protocol.receive(one).get("sees", True)]
    reason = shared_folder.needed(bundle)
    for one in blind:
        text = f"the output folder {bundle.output_dir} of node 0"
        if reason:
            one.found.append(f"this node does not see {text}, and {reason}; start from a folder that all nodes share")
        else:
            notes.append(f"warning: {one.name} does not see {text}; after a stop request, the run could not save there")


def labelled(came: Sequence[Node], count: int) -> list[str]:
    """Each finding once, with the names of the nodes that have it."""
    having: dict[str, list[Node]] = {}
    for one in came:
        for text in one.found:
            having.setdefault(text, []).append(one)
    out = []
    for text, who in having.items():
        if len(who) == count:
            out.append(f"every node: {text}")
        elif len(who) == 1:
            out.append(f"{who[0].name}: {text}")
        else:
            out.append(f"{len(who)} nodes ({', '.join(str(one.rank) for one in who)}): {text}")
    return out


def rendezvous_failure(error: Exception) -> str | None:
    """The message if ``error`` says that the nodes' launchers did not find each other; None for any other error."""
    from torch.distributed import DistError
    from torch.distributed.elastic.rendezvous.api import RendezvousError

    if not isinstance(error, DistError | RendezvousError) or "MASTER_ADDR" not in os.environ:
        return None
    where = f"{os.environ['MASTER_ADDR']}:{os.environ.get('MASTER_PORT', '')}"
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return f"the nodes passed the preflight, but the launchers did not meet at {where} ({text}); one of them has ended"
