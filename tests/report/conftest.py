"""A fixture with the bundle whose runs are reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_support import compiled


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    compiled(tmp_path)
    return tmp_path
