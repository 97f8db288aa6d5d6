"""How the slow tests are shared out over processes (``--dist loadgroup``): a file stays together, proofs do not."""

from __future__ import annotations

import pytest

ALONE = {"test_proofs.py", "test_refusals.py"}
"""Files whose slow tests share nothing but a warm interpreter: they fill what the others leave."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups each slow test with those of its file, which share what their fixtures have trained."""
    for item in items:
        if item.get_closest_marker("slow") and item.path.name not in ALONE:
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(item.config.rootpath))))
