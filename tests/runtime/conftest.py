"""Add this folder to sys.path, so that tests can import its helpers by name, and run the tests offline."""

from __future__ import annotations

import os
import sys

import pytest
from ports import free_port

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


@pytest.fixture
def port() -> int:
    """A TCP port of this machine that is free at this moment."""
    return free_port()
