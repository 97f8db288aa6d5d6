"""The output folder's disk becomes full at a random moment, with a random number of bytes left. While a run uses the
folder, a second run in it is refused.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from fault_runs import Going, Runs, text
from moments import pause

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.slow


@pytest.fixture
def small(tmp_path: Path) -> Iterator[str]:
    """A folder on its own disk of 64 MiB."""
    folder = os.path.join(tmp_path, "small")
    os.mkdir(folder)
    words = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("XPC_EVERY_TEST"):
        pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(path: str, left: int) -> None:
    """Fill a disk until only this many bytes are free."""
    disk = os.statvfs(os.path.dirname(path))
    with open(path, "wb") as handle, suppress(OSError):  # the disk may be full already
        os.posix_fallocate(handle.fileno(), 0, max(1, disk.f_bavail - left // disk.f_frsize) * disk.f_frsize)


DISKS = {
    "one": (4, text(world=1, steps=14, save="every=3 keep=2", every=1)),
    "zero2": (3, text(strategy="zero2", steps=14, save="every=3 keep=2", every=1)),
    "logging": (2, text(world=1, steps=40, save="every=never", every=1)),
}
"""Maps each case to the number of times that it is tried, and to its spec. The disk has no room for a checkpoint (2
MiB), or for a line of the log (150 bytes).
"""


@pytest.mark.parametrize("kind", DISKS)
def test_full_disk_is_reported_and_the_same_command_continues(
    runs: Callable[[str], Runs], chance: random.Random, small: str, kind: str
) -> None:
    wanted, source = DISKS[kind]
    here = runs(DEFAULT)
    bundle, filler = here.compiled(source, f"disk-{kind}"), os.path.join(small, "filler")
    left = 0

    def start(bundle: str, cwd: str) -> Going:
        nonlocal left
        left = chance.choice([0, chance.randrange(2 << 20)]) if kind != "logging" else 0
        if chance.random() < 1 / 4:
            # in a quarter of the starts, the disk is full before the run starts
            fill(filler, left)
        return here.start(bundle, cwd)

    for going, hit in here.disturbed(bundle, small, wanted, start):
        moment = "before"
        if not os.path.exists(filler):
            pause(here, going, bundle, chance)
            going.send(signal.SIGSTOP)
            moment = going.moment
            fill(filler, left)
            going.send(signal.SIGCONT)
        status = going.wait()
        os.remove(filler)
        assert None not in status, going.text
        if not any(status):
            # The run finished before the disk was full, or the remaining space was enough for it.
            continue
        hit[f"{moment}, {left >> 10} KiB left"] += 1
        assert 1 in status, f"{status}: {going.text}"
        reported = re.findall(
            r"error: .*No space left on device; free some space, and the same command (.*)", going.text
        )
        assert reported, going.text
        assert all(one.startswith(("resumes from ", "starts again")) for one in reported), reported


REFUSALS = ("a run is training into", "contains this run, finished")


def test_a_second_run_is_refused_at_every_moment_of_the_first(
    runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path
) -> None:
    """The first run holds a lock on its folder until it ends, even while it hangs. A second run in the same folder is
    refused at once.
    """
    here = runs(DEFAULT)
    bundle = here.compiled(text(world=1, steps=14, save="every=3 keep=2", every=1), "second")
    for going, hit in here.disturbed(bundle, str(tmp_path), 4):
        still, killed = chance.random() < 0.75, chance.random() < 0.5
        pause(here, going, bundle, chance)
        if still:
            going.send(signal.SIGSTOP)
        moment, lived = going.moment, going.lives
        second = here.start(bundle, going.cwd, XPC_PREFLIGHT=chance.choice(["passed", ""]))
        other = second.wait()
        if still and killed:
            going.send(signal.SIGKILL)
        going.send(signal.SIGCONT)
        status = going.wait()
        second.check()
        # If the first run has not locked the folder yet, the second run gets the lock, and the first run is refused.
        late = other != [0] or REFUSALS[1] in second.text
        loser, lost = (second, other) if late else (going, status)
        if lost != [-signal.SIGKILL]:
            assert lost == [0 if REFUSALS[1] in loser.text else 1], f"{status} {other}: {loser.text}"
            assert sum(loser.text.count(one) for one in REFUSALS) == 1, loser.text
        assert loser is going or status == ([-signal.SIGKILL] if still and killed and lived else [0]), going.text
        if lived:
            hit[f"{moment}, {'still' if still else 'running'}, second ended with {other}"] += 1


def test_second_run_leaves_the_first_intact(runs: Callable[[str], Runs], chance: random.Random, tmp_path: Path) -> None:
    here = runs(DEFAULT)
    bundle = here.compiled(text(world=1, steps=2000, every=1, save="every=never"), "live")
    first = here.start(bundle, str(tmp_path))
    first.until_step(chance.randint(1, 20))
    second = here.start(bundle, str(tmp_path))
    assert second.wait() == [1]
    assert second.text.count("a run is training into") == 1
    first.until_step(first.reached() + 1)
    first.kill()
    third = here.start(bundle, str(tmp_path))  # the kill of the first run has released the lock on the folder
    third.until(lambda: "no complete checkpoint to resume from: starting from the beginning" in third.text)
    third.kill()
