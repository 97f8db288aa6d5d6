"""If `launch.sh --stage` was interrupted, its folder is incomplete. A run with this folder reports this before it loads
anything.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from run_features import read
from runtime_bundles import ROOT, plan, source, write

sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from hub_index import Served

from xpc.runtime import stage
from xpc.runtime.core import progress
from xpc.runtime.core.errors import RunError
from xpc.runtime.library_internals import progress_bars


def bundle(folder: Path) -> str:
    """A bundle with a model and rows of the hub. Its evaluation rows are another split of the same dataset."""
    facts = plan("tiny", [{**source("d.jsonl"), "id": "me/rows", "path": None, "split": "train", "revision": "v1"}])
    facts["model"].update(id="me/tiny", path=None, revision=None)
    facts["data"]["eval_split"] = "test"
    return write(str(folder / "bundle"), facts)


def filled(folder: Path, *names: str) -> Path:
    """Write a staged folder that has a file of four bytes for each of these names."""
    (folder / "rows").mkdir(parents=True)
    found = {}
    for number, name in enumerate(names):
        (folder / "rows" / str(number)).write_text("1234")
        found[name] = {"commit": "0" * 40, "files": {f"rows/{number}": 4}}
    (folder / "staged.json").write_text(json.dumps(found))
    return folder


NAMES = ("me/tiny@main", "me/rows[train]@v1", "me/rows[test]@v1")


def missing(folder: Path, location: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run `stage.py DIR --missing`; return its messages and its exit status."""
    status = stage.main(bundle(folder), [str(location), "--missing"])
    reported = capsys.readouterr().err
    assert (status == 0) is (reported == "")
    return [line.removeprefix("error: ").removeprefix("  - ") for line in reported.splitlines()]


def test_what_is_there_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert missing(tmp_path, filled(tmp_path / "staged", *NAMES, "me/other@main"), capsys) == []


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    location = filled(tmp_path / "staged", "me/tiny@main", "me/rows[train]@v2", "me/rows[test]@v1")
    (location / "rows" / "2").write_text("12")
    _, other, cut = missing(tmp_path, location, capsys)
    assert other.startswith(
        f"{location} has no me/rows[train]@v1, and has me/rows[train]@v2: run `launch.sh --stage {location}`"
    )
    assert cut.startswith(f"in {location}, rows/2 of me/rows[test]@v1 is missing or cut off")


def test_an_empty_folder_lacks_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reported = missing(tmp_path, tmp_path / "none", capsys)
    assert [any(f"has no {name}:" in line for line in reported) for name in NAMES] == [True] * len(NAMES)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"me/tiny@main": 1}', '{"me/tiny@main": {"files": 3}}'])
def test_a_broken_index_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tmp_path / "staged.json").write_text(text)
    (line,) = missing(tmp_path, tmp_path, capsys)
    assert line.startswith(f"cannot read {tmp_path}/staged.json: ")


def test_fetching_is_a_phase_with_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloading is a phase of its own. So if it takes more than ten seconds, the run prints that it is fetching."""
    names: list[str] = []

    def fetched(*_: object, **__: object) -> dict[str, object]:
        names.append(progress.Phase.name)
        return {"commit": "0" * 40, "files": {}}

    monkeypatch.setattr(stage, "_model", fetched)
    monkeypatch.setattr(stage, "_rows", fetched)
    monkeypatch.setattr(progress_bars, "capture", lambda shown: None)
    stage._fetch(read(bundle(tmp_path)), str(tmp_path))
    progress.now("")
    assert names == [f"fetching {name}" for name in NAMES]


@pytest.mark.slow
def test_packages_are_staged_as_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(bundle(tmp_path))
    (folder / "requirements.txt").write_text("one==1.0\n")
    with Served(packages={("one", "1.0"): ("two==2.0",), ("two", "2.0"): ()}) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        stage._wheels(read(str(folder)), str(tmp_path / "wheels"))
        found = sorted(path.name for path in (tmp_path / "wheels").iterdir())
        assert found == ["one-1.0-py3-none-any.whl", "two-2.0-py3-none-any.whl"]
        (folder / "requirements.txt").write_text("three==3.0\n")
        with pytest.raises(RunError, match=r"pip built no wheels for requirements\.txt"):
            stage._wheels(read(str(folder)), str(tmp_path / "wheels"))
