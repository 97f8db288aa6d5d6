"""A rehearsal asks the run to stop and then resumes it. If the run ends by itself before that, the rehearsal succeeds;
if the run saves nothing, it fails.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xpc.runtime import rehearse

pytestmark = pytest.mark.slow

LAUNCH = """#!/bin/sh
mkdir -p {out}
if [ -d {out}/checkpoint-3 ]; then {then}; else mkdir {out}/checkpoint-3; fi
echo '{{"step": 3}}' >> {out}/metrics.jsonl
exit 75
"""


@pytest.mark.parametrize(
    ("then", "expected"), [("touch {out}/summary.json", 0), ("mkdir {out}/checkpoint-4", 0), (":", 1)]
)
def test_a_launch_that_is_asked_too_late(tmp_path: Path, then: str, expected: int) -> None:
    bundle, out = tmp_path / "b", tmp_path / "out.rehearsal"
    bundle.mkdir()
    (bundle / "launch.sh").write_text(LAUNCH.format(out=out, then=then.format(out=out)))
    os.chmod(bundle / "launch.sh", 0o755)
    plan = {"run": {"full_state": True}}
    assert rehearse._rehearsed(str(bundle), str(out), plan, dict(os.environ), str(bundle)) == expected
