"""The datasets library. It is imported when a test first uses it, so that processes which only collect tests do not
import it.
"""

from __future__ import annotations

from typing import Any

import pytest


class _Late:
    def __getattr__(self, name: str) -> Any:
        return getattr(pytest.importorskip("datasets"), name)


datasets: Any = _Late()
