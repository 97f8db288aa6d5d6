"""`xpc explain` of a complete spec lists the model and the data first."""

from __future__ import annotations

from pathlib import Path

import pytest
from case_support import spec

from xpc.compiler.explain.spec_values import spec_values


@pytest.mark.slow
def test_all_values_begin_with_the_model_and_the_data(tmp_path: Path) -> None:
    path = tmp_path / "t.xp"
    path.write_text(spec())
    heads = [text.partition(" = ")[0] for text in spec_values(str(path)).split("\n") if text[:1].strip()]
    assert heads[:2] == ["model", "data"]
    assert {"optimizer.lr", "seed", "strategy"} <= set(heads)
    assert "data" not in [text.partition(" = ")[0] for text in spec_values(str(path), "seed").split("\n")]
