"""`launch.sh --stage` downloads model and data. A run on two nodes of a real Slurm cluster then reads only the
downloaded files, and never the hub.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from emitted import compiled
from hub_files import HubFiles
from jobs import STEPS, log, same, spec
from slurm import Cluster
from stacks import environment, interpreter

from xpc.compiler.stacks import DEFAULT

pytestmark = pytest.mark.nightly

CARD = b"---\nconfigs:\n- config_name: default\n  data_files: rows.jsonl\n---\n"
DATA = "data corpus {{\n  me/rows@{} {{\n    columns = [messages]\n  }}\n}}"
CONFIG = 'model(config=file("tiny/config.json"))'


def test_a_job_runs_from_the_staged_folder(
    cluster: Cluster,
    location: str,
    alone: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    python = interpreter(DEFAULT)
    tiny = {path.name: path.read_bytes() for path in Path(location, "tiny").iterdir()}
    staged, home = tmp_path / "fetched", {"PYTHON": python, "HF_HOME": str(tmp_path / "home")}
    with HubFiles() as hub:
        model = hub.push("models", "me/tiny", tiny)
        rows = hub.push(
            "datasets", "me/rows", {"README.md": CARD, "rows.jsonl": Path(location, "messages.jsonl").read_bytes()}
        )
        text = spec("zero2", steps=STEPS, more="\n".join(("launch slurm", CONFIG, DATA.format(rows))))
        text = text.replace('"tiny" on "messages.jsonl"', f"me/tiny@{model} on corpus")
        bundle = compiled(text, location, os.path.join(location, "staged.bundle"), "staged.xp")
        words = [os.path.join(bundle, "launch.sh"), "--stage", str(staged)]
        reported = environment(**home, **hub.environment)
        done = subprocess.run(words, cwd=tmp_path, env=reported, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    away = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "empty"), "PYTHON": python}
    known = cluster.environment
    for start, folder in (("without", {}), ("with", {"XPC_STAGED": str(staged)})):
        cwd = tmp_path / start
        cwd.mkdir()
        monkeypatch.setattr(cluster, "environment", environment(**{**known, **away, **folder}))
        job = cluster.wait(cluster.submit(os.path.join(bundle, "job.sbatch"), cwd=str(cwd)))
        assert (job["JobState"] == "COMPLETED") == bool(folder), log(str(cwd))
    same(tmp_path / "with", alone("zero2"))
