"""The datasets library, imported when a test first uses it, and not in every process that collects the tests."""

from __future__ import annotations

from typing import Any

import pytest


class _Late:
    def __getattr__(self, name: str) -> Any:
        return getattr(pytest.importorskip("datasets"), name)


datasets: Any = _Late()
