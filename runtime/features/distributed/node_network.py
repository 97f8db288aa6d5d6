"""Addresses, interfaces and the rendezvous port of a run's nodes. Uses the standard library, and psutil if it is
installed.
"""

import os
import socket
import time
from collections.abc import MutableMapping

from ...core.errors import RunError
from ...core.feature import Bundle, Feature

NOWHERE = ("192.0.2.1", 9)
"""An address for documentation (RFC 5737). Connecting a datagram socket to it sends nothing, but shows which address
this machine uses for such connections."""
VIRTUAL = ("lo", "docker", "veth", "virbr", "br-", "cni", "flannel", "cali")
"""Prefixes of the names of network interfaces that do not lead to other machines, such as docker0."""
PAUSE = 0.25
"""Seconds between two attempts to reach node 0."""


def resolve(address: str, port: int) -> tuple[int, tuple[str, int]]:
    """The family and socket address of a host. Raises OSError (gaierror) if the name does not resolve."""
    family, _, _, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    return family, (str(place[0]), int(place[1]))


def own_address(toward: str, port: int) -> str | None:
    """The address at which other nodes reach this machine: the local address of a connection to ``toward``.

    On node 0, this may be the loopback, for example on Debian, where a machine's own name means 127.0.1.1. If so,
    return the local address of a connection to other networks, or else an interface's first address, or else None.
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
    """The name of the interface with this address, or None."""
    return next((name for name, ips in _interfaces().items() if address in ips), None)


class NodeNetwork(Feature):
    """Hooks that set this machine's address for the other nodes."""

    def before_imports(self, bundle: Bundle, environ: MutableMapping[str, str]) -> None:
        """Set this machine's address for gloo and torchrun."""
        choose(environ)


def choose(environ: MutableMapping[str, str]) -> None:
    """Set the variables with this machine's address for gloo and torchrun, unless the user has set them.

    By default, gloo listens on the address of the host name. If the host name has no address, or the address 127.0.1.1,
    gloo listens on the loopback, and the nodes wait for each other until the timeout (torch 2.13, ProcessGroupGloo.cpp;
    confirmed between two network namespaces). torchrun's c10d rendezvous gives the host name to the other nodes as the
    address of rank 0. NCCL chooses the interface itself.
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
    """Whether an address belongs to this machine. False for a host name without an address."""
    try:
        family, place = resolve(address, 0)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((place[0], 0))
    except OSError:
        return False
    return True


def listen(port: int) -> socket.socket:
    """A listening socket on every address of this machine. Raises RunError if the port cannot be used."""
    both = socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            ("", port), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both, backlog=4096
        )
    except (OSError, OverflowError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise RunError(
            f"port {port} cannot be used for the rendezvous: {reason}{holder(port)}; set MASTER_PORT to a free port"
        ) from error


def holder(port: int) -> str:
    """A phrase in brackets: the process that listens on this machine's port. "" if this user may not see it."""
    try:
        import psutil  # type: ignore[import-untyped, unused-ignore]  # a requirement of accelerate

        for one in psutil.net_connections("tcp"):
            if one.laddr and one.laddr.port == port and one.status == psutil.CONN_LISTEN and one.pid:
                return f" (by process {one.pid}, {psutil.Process(one.pid).name()})"
    except Exception:  # the system and the user decide whether psutil may see other users' processes
        return ""
    return ""


def reach(address: str, port: int, until: float) -> socket.socket:
    """Connect to node 0. Retry until ``until`` (`time.monotonic`), then raise RunError with the last reason.

    A host name without an address is also retried: a cluster's name service may learn the name of a node late.
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
        return f"{address}:{port} does not answer: the machine is down, or a firewall drops the packets"
    return f"{address}:{port} cannot be reached: {error.strerror or error}"


def _loops(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _interfaces() -> dict[str, list[str]]:
    """The addresses of each interface by its name, without loopback and link-local addresses."""
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
