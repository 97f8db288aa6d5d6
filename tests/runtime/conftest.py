"""The tests' own helpers import by name; nothing here reaches the network."""

from __future__ import annotations

import os
import sys

import pytest
from ports import free_port

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


@pytest.fixture
def port() -> int:
    """A port that nobody listens at."""
    return free_port()
