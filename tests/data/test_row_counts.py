"""The compiler counts the rows of a mixture with shares before the run draws them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from case_support import spec, trained
from compile_support import checked, put, shown

from xpc.compiler.data.row_counts import mixture_rows


@pytest.mark.parametrize("holdout", ["25%", "40"])
def test_a_mixture_holds_out_a_share_or_a_number_of_its_rows(tmp_path: Path, holdout: str) -> None:
    row = json.dumps({"messages": [{"role": "user", "content": "2?"}, {"role": "assistant", "content": "4"}]}) + "\n"
    root = put(tmp_path, {"a.jsonl": row * 80, "b.jsonl": row * 80})
    sources = [f'  "{name}.jsonl" {{\n    columns = [messages]\n    share = 50%\n  }}' for name in "ab"]
    text = spec("data mix {", *sources, f"  holdout = {holdout}", "}", train=trained("qwen2.5-3b on mix"))
    found = checked(text, root)
    assert found.spec is not None, shown(found)
    assert mixture_rows(found.spec) == ([60, 60], [20, 20])
