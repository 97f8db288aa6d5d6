"""For every family, the committed tables list exactly the modules that the libraries of each stack build."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from patience import HUNG
from stacks import REPOSITORY, environment, interpreter

from xpc.compiler.stacks import HERE, STACKS


@pytest.mark.nightly
@pytest.mark.parametrize("stack", STACKS)
def test_table_is_made_again(stack: str, tmp_path: Path) -> None:
    script = os.path.join(REPOSITORY, "tests", "stacks", "write_modules.py")
    words = [interpreter(stack), script, stack, "-o", str(tmp_path / "made.json")]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, check=False, timeout=HUNG)
    assert done.returncode == 0, done.stderr[-2000:]
    made, kept = (json.loads(one.read_text()) for one in (tmp_path / "made.json", Path(HERE, stack, "modules.json")))
    for family in {*made["families"], *kept["families"]}:
        assert made["families"].get(family) == kept["families"].get(family), family
