"""Addresses, interfaces and the one port that the nodes of a run meet at. Standard library, and psutil where it is."""

import os
import socket
import time
from collections.abc import MutableMapping

from ...core.errors import RunError
from ...core.feature import Bundle, Feature

NOWHERE = ("192.0.2.1", 9)
"""An address that documents use (RFC 5737). A datagram socket that is connected to it sends nothing, and knows from
which address of this machine it would."""
VIRTUAL = ("lo", "docker", "veth", "virbr", "br-", "cni", "flannel", "cali")
"""Beginnings of the names of interfaces that lead to no other machine."""
PAUSE = 0.25
"""Seconds between two attempts to reach node 0."""


def resolve(address: str, port: int) -> tuple[int, tuple[str, int]]:
    """The family and the socket address of a host. Raises OSError (gaierror) when the name has none."""
    family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    return family, (str(place[0]), int(place[1]))


def own_address(toward: str, port: int) -> str | None:
    """The address of this machine that others see it at: the one it would use toward a host.

    Where that is the loopback (node 0 of a machine whose own name is 127.0.1.1, as Debian has it), the one toward
    elsewhere, else the first of an interface that leads somewhere. None when there is none.
    """
    try:
        places = [resolve(toward, port)]
    except OSError:
        places = []
    for family, place in [*places, (socket.AF_INET, NOWHERE)]:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(place)
            except OSError:
                continue
            found = str(probe.getsockname()[0])
        if not _loops(found):
            return found
    return next((one for name, ips in _interfaces().items() if not name.startswith(VIRTUAL) for one in ips), None)


def interface(address: str) -> str | None:
    """The name of the interface that holds an address of this machine."""
    return next((name for name, ips in _interfaces().items() if address in ips), None)


class NodeNetwork(Feature):
    """The address of this machine among the nodes."""

    def before_imports(self, bundle: Bundle, environ: MutableMapping[str, str]) -> None:
        """This machine's address among the nodes of the run."""
        choose(environ)


def choose(environ: MutableMapping[str, str]) -> None:
    """Tells gloo and torchrun which of this machine's addresses the other nodes reach; what is set already stays.

    gloo listens on the address of the machine's own name, and where that name has none, or 127.0.1.1, on the loopback:
    the nodes then wait for each other until the timeout (torch 2.13, ProcessGroupGloo.cpp; executed between two network
    namespaces). torchrun's c10d rendezvous gives the others that name as the address of rank 0. NCCL looks at the
    interfaces itself and needs no help.
    """
    toward, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT", "")
    if not toward:
        return
    address = own_address(toward, int(port) if port.isdigit() and int(port) < 65536 else 0)
    if address is None:
        return
    name = interface(address)
    if name is not None:
        environ.setdefault("GLOO_SOCKET_IFNAME", name)
    environ.setdefault("PET_LOCAL_ADDR", address)


def is_own(address: str) -> bool:
    """Whether a host's address is one of this machine; False where it does not resolve."""
    try:
        family, place = resolve(address, 0)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((place[0], 0))
    except OSError:
        return False
    return True


def listen(port: int) -> socket.socket:
    """A listening socket on every address of this machine. Raises RunError when the port cannot be had."""
    both = socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            ("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both, backlog=4096
        )
    except (OSError, OverflowError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise RunError(
            f"port {port} cannot be used for the rendezvous: {reason}{holder(port)}; set MASTER_PORT to a free one"
        ) from error


def holder(port: int) -> str:
    """Who listens on a port of this machine, in brackets, as far as this user may see it."""
    try:
        import psutil  # type: ignore[import-untyped, unused-ignore]  # a requirement of accelerate

        for one in psutil.net_connections("tcp"):
            if one.laddr and one.laddr.port == port and one.status == psutil.CONN_LISTEN and one.pid:
                return f" (by process {one.pid}, {psutil.Process(one.pid).name()})"
    except Exception:  # what psutil may not read differs by system and by user
        return ""
    return ""


def reach(address: str, port: int, until: float) -> socket.socket:
    """A connection to node 0, tried again until a time of `time.monotonic`. Raises RunError that says what was wrong.

    A name that does not resolve is tried again, too: a cluster's name service learns of a node while it starts.
    """
    while True:
        try:
            family, place = resolve(address, port)
            found = socket.socket(family, socket.SOCK_STREAM)
            found.settimeout(max(0.1, min(5.0, until - time.monotonic())))
            try:
                found.connect(place)
                return found
            except BaseException:
                found.close()
                raise
        except OSError as error:
            reason = _reason(address, port, error)
        if time.monotonic() + PAUSE >= until:
            raise RunError(reason)
        time.sleep(PAUSE)


def _reason(address: str, port: int, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"MASTER_ADDR is {address}, which this node cannot resolve ({error.strerror})"
    if isinstance(error, ConnectionRefusedError):
        own = "; that is an address of this node itself" if is_own(address) else ""
        return f"nothing listens on {address}:{port}: node 0 was not started there, or has ended{own}"
    if isinstance(error, TimeoutError):
        return f"{address}:{port} does not answer: the machine is down, or a firewall drops what is sent to it"
    return f"{address}:{port} cannot be reached: {error.strerror or error}"


def _loops(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _interfaces() -> dict[str, list[str]]:
    """The addresses of each interface, without the loopback's and without those of one link only."""
    try:
        import psutil
    except ImportError:
        return {}
    ips: dict[str, list[str]] = {}
    for name, addresses in psutil.net_if_addrs().items():
        for one in addresses:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                address = one.address.split("%")[0]
                if not _loops(address) and not address.startswith("fe80:"):
                    ips.setdefault(name, []).append(address)
    return ips
