"""Select the tests of each tier, distribute them over processes, and seed random tests.

In the slow tier (``--dist loadfile``), one process runs all tests of a file, except those of test_proofs.py.
"""

from __future__ import annotations

import atexit
import gc
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers
from xdist.scheduler import LoadFileScheduling

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))

from module_folders import put_on_path

put_on_path()
ALONE = "test_proofs.py"
"""The file of the proofs. Its slow tests have nothing in common except a warm interpreter, so they need not all run in
one process. They run last, each in the next process that is free.
"""
FAST = "not slow"
ALL_SLOW = ("\npytestmark = pytest.mark.slow", "\npytestmark = pytest.mark.nightly")
NIGHTLY = "nightly"
"""The mark of tests that take minutes each. These tests run only if an expression names the mark: `-m nightly`, as in
`make slow`.
"""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """In the fast tier, do not collect files whose tests are all slow: importing these files would import torch and
    TRL.
    """
    if config.option.markexpr != FAST or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return True if any(mark in text for mark in ALL_SLOW) else None


MEMORY = "/dev/shm"
"""A folder of Linux whose files are kept in memory and not on a disk."""
ROOM = 2**30
"""`MEMORY` is used only if it has this many free bytes, more than the fast tier writes. In a container it often has
only 64 MiB.
"""


def in_memory() -> bool:
    """Whether tests can write their files to `MEMORY`, and start programs there. A test writes a hundred small files
    for each bundle, which on most disks takes longer than the test itself.
    """
    if not os.access(MEMORY, os.W_OK):
        return False
    found = os.statvfs(MEMORY)
    return found.f_bavail * found.f_frsize > ROOM and not found.f_flag & os.ST_NOEXEC


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """In the fast tier, the files of tests are in memory, and workers report neither that a test starts nor that its
    setup or teardown passed.

    For thousands of small tests, sending these reports takes as long as running the tests. With `--durations` or a
    JUnit file, all reports are sent, because these two options need the time of each phase.
    """
    option = config.option
    if option.markexpr == FAST and in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)
    if option.markexpr != FAST or not hasattr(config, "workerinput") or option.xmlpath or option.durations:
        return
    (worker,) = (one for one in config.pluginmanager.get_plugins() if type(one).__name__ == "WorkerInteractor")
    send = worker.sendevent

    def brief(name: str, **reported: Any) -> None:
        report = reported.get("data", {})
        if name != "logstart" and not (report.get("outcome") == "passed" and report["when"] != "call"):
            send(name, **reported)

    worker.sendevent = brief


WAITING = "tests/launch/"
"""A folder of slow tests that spend most of their time waiting for a cluster's scheduler. The other tests need the
processor all the time.
"""
SECONDS = "xpc/seconds"
"""The key of pytest's cache under which the slow tier records how long each of its files took."""
_seconds: Counter[str] = Counter()


def recorded(config: pytest.Config) -> Mapping[str, float]:
    """Map each test file to the seconds that it took in earlier runs. The workers of xdist get the numbers that the
    controller has read, so that all of them sort the tests in the same order.
    """
    if hasattr(config, "workerinput"):
        return config.workerinput[SECONDS]
    return config.cache.get(SECONDS, {}) if hasattr(config, "cache") else {}


def pytest_configure_node(node: Any) -> None:
    """Pass a worker of xdist the seconds that each file took in earlier runs."""
    node.workerinput[SECONDS] = recorded(node.config)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the seconds of the test to the seconds of its file."""
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Record the seconds of each file that the slow tier has run."""
    config = session.config
    kept = hasattr(config, "cache") and not hasattr(config, "workerinput")
    if config.getoption("dist") == "loadfile" and kept:
        config.cache.set(SECONDS, {**recorded(config), **_seconds})


def in_turn(items: list[pytest.Item], seconds: Mapping[str, float]) -> list[pytest.Item]:
    """Sort the slow tests into the order in which they start: after each file whose tests mostly wait come two files
    whose tests compute. Of each kind, files without a record of their ``seconds`` come first, then the files that took
    longest. If a long file started late, one process would still run this file while all other processes had nothing
    left to do. The proofs come last, one by one.
    """
    waiting, computing, proofs = list[Path](), list[Path](), list[pytest.Item]()
    of: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.path.name == ALONE:
            proofs.append(item)
            continue
        if item.path not in of:
            (waiting if item.nodeid.startswith(WAITING) else computing).append(item.path)
        of.setdefault(item.path, []).append(item)
    for kind in (waiting, computing):
        kind.sort(key=lambda path: -seconds.get(of[path][0].nodeid.partition("::")[0], float("inf")))
    files: list[Path] = []
    while waiting or computing:
        files += [*waiting[:1], *computing[:2]]
        del waiting[:1], computing[:2]
    return [*(item for path in files for item in of[path]), *proofs]


class Shared(LoadFileScheduling):
    """Runs all tests of a file in one process, except those of test_proofs.py, which are distributed one by one.

    The mark `xdist_group` is not used for this, because xdist 3.8 ignores the groups under pytest 9.
    """

    def _split_scope(self, nodeid: str) -> str:
        """All proofs of an older stack run in one process, so that this stack's libraries are imported only once."""
        file, older = super()._split_scope(nodeid), re.search(r"-(0\.\d+)\]$", nodeid)
        if file.rpartition("/")[2] != ALONE:
            return file
        return f"{file} {older[1]}" if older else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """In the slow tier (``--dist loadfile``), return `Shared`, and keep the order in which pytest has sorted the tests.
    In other tiers, return xdist's own scheduler.
    """
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return Shared(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give nightly tests the mark `slow`, too, so that the fast tier (`-m "not slow"`) excludes them."""
    if item.get_closest_marker(NIGHTLY) is not None:
        item.add_marker("slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Unless `-m` names the mark `nightly`, deselect nightly tests. Sort the tests of the slow tier by `in_turn`."""
    if NIGHTLY not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker(NIGHTLY) is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker(NIGHTLY) is None]
    if config.option.markexpr != FAST:
        items[:] = in_turn(items, recorded(config))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude all objects that exist before the first test from garbage collection, because they are needed until the
    end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # The garbage collector runs only rarely: reference counting already frees most objects of a test.
        gc.set_threshold(50_000)
        gc.enable()
        atexit.register(gc.unfreeze)  # at exit, some libraries search all objects for leaks


SEED = "2026"
"""The seed of random tests in `make test`. `make soak` sets XPC_SEED to other seeds."""

hypothesis.settings.register_profile("fixed", deadline=None, database=None, derandomize=True)
hypothesis.settings.register_profile("fresh", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("fresh" if "XPC_SEED" in os.environ else "fixed")
if "XPC_SEED" not in os.environ:
    # Hypothesis also takes example values from the constants of all imported modules. Imports differ with the tests
    # that ran earlier in the same worker, and so would the examples. So no constants are taken.
    providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """A random generator whose seed is made of XPC_SEED (by default `SEED`) and the test's name. A failing test prints
    its seed.
    """
    seed = os.environ.get("XPC_SEED", SEED)
    print(f"{request.node.name}: XPC_SEED={seed}")
    return random.Random(f"{seed} {request.node.name}")


@pytest.fixture(scope="session")
def location(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the local files (data and a model) that the specs of generated.py name."""
    from compile_support import put
    from generated import FILES

    return put(tmp_path_factory.mktemp("generated"), FILES)
