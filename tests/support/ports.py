"""Find free ports for servers that a test is about to start.

The kernel assigns ports of its ephemeral range to sockets that ask for no port, so a free port of that range may be
taken before the server binds it. The ports found here are below that range and above those of common services.
"""

from __future__ import annotations

import random
import socket

LOWEST, HIGHEST = 12000, 32767
_chance = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """This many different ports, each of which could just be bound on all addresses of this machine."""
    found: list[int] = []
    held: list[socket.socket] = []
    try:
        while len(found) < count:
            port, one = _chance.randint(LOWEST, HIGHEST), socket.socket()
            held.append(one)
            try:
                one.bind(("", port))
            except OSError:
                continue
            found.append(port)
        return found
    finally:
        for one in held:
            one.close()


def free_port() -> int:
    return free_ports(1)[0]
