"""A Slurm cluster of this machine's own, and jobs whose launch.sh is a stand-in of a few lines."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "support"), os.path.join(os.path.dirname(HERE), "proof")]

from slurm import Cluster, missing  # noqa: E402


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes; a third, where a test asks for it, is the vLLM server's."""
    lacking = missing()
    if lacking:
        why = f"{', '.join(lacking)} of Debian's slurm-wlm and munge are not installed"
        if os.environ.get("XPC_EVERY_TEST"):
            pytest.fail(why)
        pytest.skip(why)
    folder = tempfile.mkdtemp(prefix="slurm-")  # short: the path of a socket has 107 characters
    made = Cluster(folder, nodes=3)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)
