"""Rotary positions in a config.json of transformers 5, which transformers 4 ignores."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from interpreters import interpreter
from patience import HUNG

from xpc.compiler import stacks
from xpc.runtime.features.model.newer_config import ignored

MILLION = {"rope_theta": 1e6, "rope_type": "default"}
PROGRAM = """\
import sys
from transformers import AutoConfig, AutoTokenizer
print("IGNORED", AutoConfig.from_pretrained(sys.argv[1]).rope_theta)
try:
    AutoTokenizer.from_pretrained(sys.argv[1])
except ValueError as error:
    print("REFUSED", error)
"""


@pytest.mark.parametrize(("config", "wrong"), [
    ({"rope_parameters": MILLION, "rope_theta": 1e4}, "`rope_theta` 1e+06 of `rope_parameters`"),
    ({"rope_parameters": MILLION, "rope_theta": 1e6}, None),
    ({"rope_theta": 1e4}, None),
    ({"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"}, "rope_theta": 1e4, "rope_scaling": None},
     "the scaling yarn of `rope_parameters`"),
])  # fmt: skip
def test_what_is_ignored(config: dict[str, Any], wrong: str | None) -> None:
    assert ignored(SimpleNamespace(**config)) == wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", [one for one in stacks.names() if not stacks.load(one).facts.reads_newer_files])  # type: ignore[union-attr]
def test_an_older_transformers_does_not_read_these_files(name: str, tmp_path: Path) -> None:
    config = {"model_type": "qwen2", "rope_parameters": MILLION}
    for file, text in (("config.json", config), ("tokenizer_config.json", {"tokenizer_class": "TokenizersBackend"})):
        (tmp_path / file).write_text(json.dumps(text), encoding="utf-8")
    done = subprocess.run([interpreter(name), "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True,
                          check=False, timeout=HUNG)  # fmt: skip
    assert "IGNORED 10000.0" in done.stdout, done.stderr
    assert "REFUSED Tokenizer class TokenizersBackend does not exist" in done.stdout
