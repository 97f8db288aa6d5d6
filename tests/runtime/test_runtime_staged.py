"""What a launch says of the folder that XPC_STAGED names, before anything is loaded."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from runtime_bundles import plan, source, write

from xpc.runtime.core import arguments
from xpc.runtime.core.bundle import Bundle, read
from xpc.runtime.core.errors import RunError
from xpc.runtime.features import staged


def bundle(folder: Path) -> Bundle:
    """A bundle that reads a model and rows of the hub, and evaluates on another split of them."""
    facts = plan("tiny", [{**source("d.jsonl"), "id": "me/rows", "path": None, "split": "train", "revision": "v1"}])
    facts["model"].update(id="me/tiny", path=None, revision=None)
    facts["data"]["eval_split"] = "test"
    return read(write(str(folder / "bundle"), facts))


def filled(folder: Path, *names: str) -> Path:
    """A staged folder with a file of four bytes for each name."""
    (folder / "rows").mkdir(parents=True)
    found = {}
    for number, name in enumerate(names):
        (folder / "rows" / str(number)).write_text("1234")
        found[name] = {"commit": "0" * 40, "files": {f"rows/{number}": 4}}
    (folder / "staged.json").write_text(json.dumps(found))
    return folder


NAMES = ("me/tiny@main", "me/rows[train]@v1", "me/rows[test]@v1")


def test_what_a_run_needs(tmp_path: Path) -> None:
    assert tuple(staged.needs(bundle(tmp_path))) == NAMES


def test_without_the_variable_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XPC_STAGED", raising=False)
    assert staged.missing(bundle(tmp_path)) == []
    variables = {"PATH": "/bin"}
    staged.read_there(variables)
    assert variables == {"PATH": "/bin"}


def test_what_is_there_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XPC_STAGED", str(filled(tmp_path / "staged", *NAMES)))
    assert staged.missing(bundle(tmp_path)) == []


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = filled(tmp_path / "staged", "me/tiny@main", "me/rows[train]@v2", "me/rows[test]@v1")
    monkeypatch.setenv("XPC_STAGED", str(place))
    (place / "rows" / "2").write_text("12")
    other, cut = staged.missing(bundle(tmp_path))
    assert other.startswith(f"{place} has no me/rows[train]@v1, and has me/rows[train]@v2: `launch.sh --stage {place}`")
    assert cut.startswith(f"{place} lacks rows/2 of me/rows[test]@v1, or it is cut off")


def test_an_empty_folder_lacks_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XPC_STAGED", str(tmp_path / "none"))
    assert len(staged.missing(bundle(tmp_path))) == len(NAMES)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"me/tiny@main": 1}', '{"me/tiny@main": {"files": 3}}'])
def test_a_broken_index_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "staged.json").write_text(text)
    monkeypatch.setenv("XPC_STAGED", str(tmp_path))
    with pytest.raises(RunError, match=r"cannot read .*staged\.json"):
        staged.missing(bundle(tmp_path))


def test_the_libraries_are_pointed_there_and_kept_from_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("XPC_STAGED", "there")
    monkeypatch.setenv("TRANSFORMERS_CACHE", "elsewhere")
    arguments.prepare_environment(bundle(tmp_path))
    found = {name: os.environ.get(name) for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "XPC_STAGED")}
    place = str(tmp_path / "there")
    assert found == {"HF_HUB_CACHE": f"{place}/hub", "HF_HUB_OFFLINE": "1", "XPC_STAGED": place}
    assert "TRANSFORMERS_CACHE" not in os.environ
