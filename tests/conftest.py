"""What is collected, how tests are shared out over processes, and what is drawn at random.

Of the slow ones (``--dist loadfile``) a file stays together, proofs do not; of the fast ones those of the stack do.
"""

from __future__ import annotations

import atexit
import gc
import os
import random
from collections.abc import Generator
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

ALONE = "test_proofs.py"
"""The file whose slow tests share nothing but a warm interpreter: they fill what the others leave."""
STACK = (
    "test_runtime_data.py", "test_data_as_written.py", "test_mixture.py", "test_runtime_rows.py",
    "test_runtime_frozen.py", "test_templates.py", "test_runtime_server.py",
    "test_whole.py",
)  # fmt: skip
"""Files whose fast tests import torch and what stands on it: they come first, and so one process has them all."""
FAST = "not slow"
ALL_SLOW = "\npytestmark = pytest.mark.slow"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """The fast tier does not even import the files that are slow as a whole, and with them the stack."""
    if config.option.markexpr != FAST or collection_path.suffix != ".py":
        return None
    return True if ALL_SLOW in collection_path.read_text(encoding="utf-8") else None


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the fast tests those of the stack come first; of the others those that wait long, and the proofs last."""
    if config.option.markexpr == FAST:
        items.sort(key=lambda item: item.path.name not in STACK)
    else:
        items.sort(key=lambda item: (item.path.name == ALONE, not item.nodeid.startswith(EARLY)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays to the end: no collection of garbage has to look at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # some libraries count what is left at the end


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What the stack's modules are stays, too."""
    if item.path.name in STACK and (nextitem is None or nextitem.path.name not in STACK):
        gc.freeze()


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random moments. XPC_SEED repeats them; what was drawn is printed, and pytest shows it of a test that failed."""
    seed = int(os.environ.get("XPC_SEED") or random.SystemRandom().randrange(2**32))
    print(f"{request.node.name}: XPC_SEED={seed}")
    return random.Random(f"{seed} {request.node.name}")
