"""`launch.sh --prepare` tokenizes the rows in advance, without a GPU. A run that uses prepared rows equals a run that
prepares its rows itself.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from emitted import compiled
from stacks import launch
from tiny import conversations, write_messages
from tiny_runs import lines, spec

from xpc.compiler import cli
from xpc.compiler.files.inputs import read_spec
from xpc.compiler.pipeline import check_text
from xpc.compiler.preview.prepared_counts import prepared_counts

if TYPE_CHECKING:
    from forks import Forks

pytestmark = pytest.mark.slow

PAIRS = [
    {"prompt": row[:1], "chosen": row[1:], "rejected": [{"role": "assistant", "content": "No."}]}
    for row in conversations(64)
]
CASES = {
    "masks": spec("method sft(assistant_only)", "data(holdout=10%)", "eval(every=3)", data='"many.jsonl"'),
    "packed": spec("data(holdout=10%)", "eval(every=3)", data='"many.jsonl"', batch=" packing(isolate=mask)"),
    "dpo": spec("method dpo", data='"pairs.jsonl"'),
}


@pytest.fixture(scope="module")
def location(location: str) -> str:
    """The folder of the tiny model, with more rows."""
    write_messages(os.path.join(location, "many.jsonl"), 2500)
    Path(location, "pairs.jsonl").write_text(lines(PAIRS))  # type: ignore[arg-type]
    return location


def weights(bundle: str, cwd: Path, python: str, **variables: str) -> tuple[bytes, str]:
    cwd.mkdir()
    run = launch(bundle, str(cwd), PYTHON=python, **variables)
    assert run.done.returncode == 0, run.output
    facts = json.loads((cwd / "out" / "summary.json").read_text())
    return (cwd / "out" / "model.safetensors").read_bytes() + json.dumps(facts.get("data")).encode(), run.output


@pytest.mark.parametrize("name", CASES)
def test_the_run_with_prepared_rows_is_the_run(name: str, warm: Forks, location: str, tmp_path: Path) -> None:
    bundle, prepared = (
        compiled(CASES[name], location, f"{location}/{name}.bundle", f"{name}.xp"),
        str(tmp_path / "rows"),
    )
    first = launch(bundle, str(tmp_path), "--prepare", prepared, PYTHON=warm.python)
    assert first.done.returncode == 0, first.output
    again = launch(bundle, str(tmp_path), "--prepare", prepared, PYTHON=warm.python)
    assert "has the rows of this run already" in again.output
    plain, _ = weights(bundle, tmp_path / "plain", warm.python)
    read, output = weights(bundle, tmp_path / "read", warm.python, XPC_PREPARED=prepared)
    assert "the run reads the prepared rows in " in output
    assert "Tokenizing" not in output
    assert plain == read


def test_counts_are_read_by_the_plan_and_other_rows_are_not_used(
    warm: Forks, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle, prepared = (
        compiled(CASES["masks"], location, f"{location}/counted.bundle", "counted.xp"),
        str(tmp_path / "rows"),
    )
    Path(location, "counted.xp").write_text(CASES["masks"])
    assert launch(bundle, str(tmp_path), "--prepare", prepared, PYTHON=warm.python).done.returncode == 0
    monkeypatch.setenv("XPC_PREPARED", prepared)
    data, name, workspace = read_spec(os.path.join(location, "counted.xp"))
    checked = check_text(data, name, workspace).spec
    assert checked is not None
    counts = prepared_counts(checked, workspace.root)
    assert counts is not None
    assert (counts["rows"], counts["cut"], counts["sequences"]) == (2250, 0, 2250)
    assert 0 < counts["learned_tokens"] < counts["kept_tokens"] == counts["tokens"]
    assert cli.main(["plan", os.path.join(location, "counted.xp")]) == 0
    assert "from the 2,250 prepared rows" in capsys.readouterr().err
    other = compiled(CASES["masks"].replace("seq=64", "seq=32"), location, f"{location}/other.bundle", "other.xp")
    run = launch(other, str(tmp_path), PYTHON=warm.python, XPC_PREPARED=prepared)
    assert run.done.returncode == 0, run.output
    assert "does not exist: the run prepares the rows itself" in run.output


def test_other_learning_rates_share_prepared_rows(warm: Forks, location: str, tmp_path: Path) -> None:
    prepared = str(tmp_path / "rows")
    for name, rate in (("one", "1e-3"), ("two", "2e-3")):
        text = CASES["dpo"].replace("lr=1e-3", f"lr={rate}")
        bundle = compiled(text, location, f"{location}/{name}.bundle", f"{name}.xp")
        assert launch(bundle, str(tmp_path), "--prepare", prepared, PYTHON=warm.python).done.returncode == 0
    assert len(os.listdir(prepared)) == 1
