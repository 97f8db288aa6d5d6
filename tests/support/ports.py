"""Ports that nobody listens at, for what a test is about to start.

The kernel gives the ports of its ephemeral range to every socket that asks for none, so a port from there may be gone
again by the time a server binds it. These are below that range and above those of common services.
"""

from __future__ import annotations

import random
import socket

LOWEST, HIGHEST = 12000, 32767
_chance = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Different ports that could be bound just now, on all addresses of this machine."""
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
