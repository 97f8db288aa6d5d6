"""What is collected, how tests are shared out over processes, and what is drawn at random.

Of the slow ones (``--dist loadfile``) a file stays together; proofs do not.
"""

from __future__ import annotations

import atexit
import gc
import os
import random
import sys
from collections.abc import Generator
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
"""The file whose slow tests share nothing but a warm interpreter: they fill what the others leave."""
FAST = "not slow"
ALL_SLOW = ("\npytestmark = pytest.mark.slow", "\npytestmark = pytest.mark.nightly")
NIGHTLY = "nightly"
"""Tests that take minutes each: `make slow` (-m nightly) runs them, and no other choice of tests does."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast tier does not even import the files that are slow as a whole, and with them the stack."""
    if config.option.markexpr != FAST or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return True if any(mark in text for mark in ALL_SLOW) else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """A worker of the fast tier tells of a test's start, setup and teardown only where one fails: of thousands of small
    tests, telling takes as long as running. What counts their times is told everything.
    """
    option = config.option
    if option.markexpr != FAST or not hasattr(config, "workerinput") or option.xmlpath or option.durations:
        return
    (worker,) = (one for one in config.pluginmanager.get_plugins() if type(one).__name__ == "WorkerInteractor")
    send = worker.sendevent

    def brief(name: str, **told: Any) -> None:
        report = told.get("data", {})
        if name != "logstart" and not (report.get("outcome") == "passed" and report["when"] != "call"):
            send(name, **told)

    worker.sendevent = brief


EARLY = "tests/launch/"
"""Few tests of the slow tier, each of which waits minutes for a scheduler: they wait while the others run."""


class Shared(LoadFileScheduling):
    """A file to a process, as the names of tests say it: pytest 9 loses the groups that xdist 3.8 makes of marks."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return nodeid if file.rpartition("/")[2] == ALONE else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """For the slow tier, in the order of the collection; the fast one keeps the scheduler that it asks for."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return Shared(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """What is nightly is slow, too: the fast tier leaves it out."""
    if item.get_closest_marker(NIGHTLY) is not None:
        item.add_marker("slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nightly tests only where they are asked for. Of the slow ones, those that wait long come first, proofs last."""
    if NIGHTLY not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker(NIGHTLY) is not None]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.get_closest_marker(NIGHTLY) is None]
    if config.option.markexpr != FAST:
        items.sort(key=lambda item: (item.path.name == ALONE, not item.nodeid.startswith(EARLY)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: no collection of garbage has to look at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000)  # most of what a test makes is gone without a collection
        gc.enable()
        atexit.register(gc.unfreeze)  # some libraries count what is left at the end


SEED = "2026"
"""What `make test` draws with, every time; `make soak` sets XPC_SEED to others."""

hypothesis.settings.register_profile("fixed", deadline=None, database=None, derandomize=True)
hypothesis.settings.register_profile("fresh", deadline=None, database=None, print_blob=True)
hypothesis.settings.load_profile("fresh" if "XPC_SEED" in os.environ else "fixed")
if "XPC_SEED" not in os.environ:
    # Hypothesis draws from the constants of the modules that a process has imported, so that what a test draws would
    # depend on the tests that ran before it in the same worker.
    providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random moments, the same in every run. XPC_SEED draws others; a test that fails shows which it had."""
    seed = os.environ.get("XPC_SEED", SEED)
    print(f"{request.node.name}: XPC_SEED={seed}")
    return random.Random(f"{seed} {request.node.name}")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the data files and the model that generated specs name."""
    from compile_support import put
    from generated import FILES

    return put(tmp_path_factory.mktemp("generated"), FILES)
