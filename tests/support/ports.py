"""Find free ports for servers that a test is about to start.

A port of the kernel's ephemeral range is not safe: if another program requests any free port, it may get this one
before the server binds it. So the ports found here are below that range. They are also above the ports of common
services.
"""

from __future__ import annotations

import random
import socket

LOWEST, HIGHEST = 12000, 32767
_chance = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Find ``count`` different ports. A moment ago, each of them could be bound on all addresses of this machine."""
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
