"""Simulate two machines on one: two connected network namespaces, each with its own host name, address and processes.

Each process that a test starts on a node also gets a PID namespace. If the first process in this namespace is killed,
the kernel kills all its descendants, as a power failure would. This module needs root and iproute2, and imports only
the standard library.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence

NAMES = ("first", "second")
ADDRESSES = ("10.111.0.1", "10.111.0.2")
INSIDE = """\
hostname "$1"
mount --bind "$2" /etc/hosts
mount --bind "$3" /etc/resolv.conf
shift 3
exec "$@"
"""


def missing() -> str:
    """The reason why this machine cannot create network namespaces; empty if it can."""
    lacking = [name for name in ("ip", "unshare", "mount", "hostname") if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} of iproute2 and util-linux are not installed"
    if os.geteuid() != 0:
        return "network namespaces need root"
    name = f"xpc-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"network namespaces cannot be made: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return ""


class Nodes:
    """The two simulated machines. If ``named``, /etc/hosts resolves the names of both machines; otherwise it resolves
    neither name.

    ``python`` is the path of the interpreter for the machines' processes.
    """

    def __init__(self, folder: str, python: str, named: bool = True) -> None:
        self.python = python
        tag = os.urandom(3).hex()
        self.spaces = [f"xpc-{name}-{tag}" for name in NAMES]
        self._cables = [f"x{tag}{number}" for number in range(2)]
        self._hosts, self._resolver = os.path.join(folder, "hosts"), os.path.join(folder, "resolv.conf")
        self.name(named)
        with open(self._resolver, "w", encoding="utf-8"):
            pass  # no name server, so only names in /etc/hosts have an address
        self._started: list[subprocess.Popen[str]] = []

    def name(self, named: bool) -> None:
        """Rewrite /etc/hosts of both machines, with or without their names."""
        known = zip(ADDRESSES, NAMES, strict=True) if named else ()
        with open(self._hosts, "w", encoding="utf-8") as handle:
            handle.writelines(f"{address} {name}\n" for address, name in (("127.0.0.1", "localhost"), *known))

    def __enter__(self) -> Nodes:
        try:
            for space in self.spaces:
                _ip("netns", "add", space)
            first, second = self._cables
            _ip("link", "add", first, "netns", self.spaces[0], "type", "veth", "peer", second, "netns", self.spaces[1])
            for space, cable, address in zip(self.spaces, self._cables, ADDRESSES, strict=True):
                _ip("-n", space, "link", "set", "lo", "up")
                _ip("-n", space, "address", "add", f"{address}/24", "dev", cable)
                _ip("-n", space, "link", "set", cable, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._started:
            self.kill(one)
        for space in self.spaces:
            subprocess.run(["ip", "netns", "delete", space], capture_output=True, check=False)

    def start(self, node: int, words: Sequence[str], cwd: str, environ: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a process on a node (0 or 1); its stderr goes to its stdout."""
        # unshare waits outside of the PID namespace; with --kill-child, everything in the namespace ends together with
        # unshare
        around = ["unshare", "--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        inside = ["sh", "-euc", INSIDE, "sh", NAMES[node], self._hosts, self._resolver]
        started = subprocess.Popen(
            ["ip", "netns", "exec", self.spaces[node], *around, *inside, *words], cwd=cwd, env=dict(environ), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._started.append(started)
        return started

    def unplug(self, node: int) -> None:
        """Disconnect a node: packets are lost, and neither machine gets an error."""
        _ip("-n", self.spaces[node], "link", "set", self._cables[node], "down")

    def plug(self, node: int) -> None:
        """Connect a node again after `unplug`."""
        _ip("-n", self.spaces[node], "link", "set", self._cables[node], "up")

    @staticmethod
    def kill(one: subprocess.Popen[str]) -> None:
        """Kill a process returned by `start`, together with all its descendants (SIGKILL)."""
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
